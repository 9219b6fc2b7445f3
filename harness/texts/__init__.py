"""Every text for people and agents, in one place. Templates may mention the person who must act; text that
comes from elsewhere is neutralised first (see `outside`)."""
