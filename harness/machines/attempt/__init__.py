"""The attempt: one worker on one ticket, in one or more incarnations, from clone to sealed bundle."""
