-- The forge's tables. Times are UTC text, so that they sort as text; *_sha columns name git objects.
CREATE TABLE IF NOT EXISTS users (
  id INTEGER PRIMARY KEY AUTOINCREMENT, login TEXT NOT NULL UNIQUE COLLATE NOCASE, name TEXT, email TEXT NOT NULL,
  type TEXT NOT NULL DEFAULT 'User', site_admin INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
  hash TEXT PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users(id), cap TEXT NOT NULL DEFAULT 'admin',
  kind TEXT NOT NULL DEFAULT 'pat', scopes TEXT NOT NULL DEFAULT 'repo', revoked INTEGER NOT NULL DEFAULT 0,
  expires_at REAL);
CREATE TABLE IF NOT EXISTS repos (
  id INTEGER PRIMARY KEY AUTOINCREMENT, owner_id INTEGER NOT NULL REFERENCES users(id),
  owner TEXT NOT NULL COLLATE NOCASE, name TEXT NOT NULL COLLATE NOCASE, description TEXT,
  private INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0, default_branch TEXT NOT NULL,
  has_issues INTEGER NOT NULL DEFAULT 1,
  allow_merge_commit INTEGER NOT NULL DEFAULT 1, allow_squash_merge INTEGER NOT NULL DEFAULT 1,
  allow_rebase_merge INTEGER NOT NULL DEFAULT 1, delete_branch_on_merge INTEGER NOT NULL DEFAULT 0,
  allow_auto_merge INTEGER NOT NULL DEFAULT 0, next_number INTEGER NOT NULL DEFAULT 1,
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL, pushed_at TEXT NOT NULL, UNIQUE (owner, name));
CREATE TABLE IF NOT EXISTS collaborators (
  repo_id INTEGER NOT NULL, user_id INTEGER NOT NULL, role TEXT NOT NULL, PRIMARY KEY (repo_id, user_id));
CREATE TABLE IF NOT EXISTS protections (
  repo_id INTEGER NOT NULL, branch TEXT NOT NULL, required_reviews INTEGER NOT NULL DEFAULT 0,
  required_checks TEXT NOT NULL DEFAULT '[]', strict INTEGER NOT NULL DEFAULT 0,
  enforce_admins INTEGER NOT NULL DEFAULT 0, allow_force_pushes INTEGER NOT NULL DEFAULT 0,
  allow_deletions INTEGER NOT NULL DEFAULT 0, locked INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (repo_id, branch));
CREATE TABLE IF NOT EXISTS labels (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, name TEXT NOT NULL COLLATE NOCASE,
  color TEXT NOT NULL, description TEXT, UNIQUE (repo_id, name));
CREATE TABLE IF NOT EXISTS issues (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, number INTEGER NOT NULL,
  is_pull INTEGER NOT NULL DEFAULT 0, title TEXT NOT NULL, body TEXT, state TEXT NOT NULL DEFAULT 'open',
  state_reason TEXT, user_id INTEGER NOT NULL, locked INTEGER NOT NULL DEFAULT 0, lock_reason TEXT,
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL, closed_at TEXT, closed_by INTEGER,
  deleted INTEGER NOT NULL DEFAULT 0, moved_to TEXT, UNIQUE (repo_id, number));
CREATE INDEX IF NOT EXISTS issues_by_state ON issues (repo_id, state, created_at);
CREATE TABLE IF NOT EXISTS issue_labels (
  issue_id INTEGER NOT NULL, label_id INTEGER NOT NULL, PRIMARY KEY (issue_id, label_id));
CREATE INDEX IF NOT EXISTS issue_labels_by_label ON issue_labels (label_id);
CREATE TABLE IF NOT EXISTS assignees (
  issue_id INTEGER NOT NULL, user_id INTEGER NOT NULL, PRIMARY KEY (issue_id, user_id));
CREATE TABLE IF NOT EXISTS comments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, issue_id INTEGER NOT NULL,
  user_id INTEGER NOT NULL, body TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS comments_by_issue ON comments (issue_id, id);
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, issue_id INTEGER NOT NULL, event TEXT NOT NULL,
  actor_id INTEGER NOT NULL, commit_id TEXT, data TEXT NOT NULL DEFAULT '{}', created_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_issue ON events (issue_id, id);
CREATE TABLE IF NOT EXISTS pulls (
  issue_id INTEGER PRIMARY KEY, repo_id INTEGER NOT NULL, number INTEGER NOT NULL, head_ref TEXT NOT NULL,
  head_sha TEXT NOT NULL, base_ref TEXT NOT NULL, base_sha TEXT NOT NULL, draft INTEGER NOT NULL DEFAULT 0,
  merged INTEGER NOT NULL DEFAULT 0, merged_at TEXT, merged_by INTEGER, merge_commit_sha TEXT,
  maintainer_can_modify INTEGER NOT NULL DEFAULT 0, mergeable_key TEXT, mergeable INTEGER,
  mergeable_from REAL NOT NULL DEFAULT 0, stat_key TEXT, n_commits INTEGER NOT NULL DEFAULT 0,
  additions INTEGER NOT NULL DEFAULT 0, deletions INTEGER NOT NULL DEFAULT 0,
  changed_files INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS pulls_by_head ON pulls (repo_id, head_ref);
CREATE TABLE IF NOT EXISTS review_requests (
  issue_id INTEGER NOT NULL, user_id INTEGER NOT NULL, PRIMARY KEY (issue_id, user_id));
CREATE TABLE IF NOT EXISTS reviews (
  id INTEGER PRIMARY KEY AUTOINCREMENT, issue_id INTEGER NOT NULL, user_id INTEGER NOT NULL, body TEXT NOT NULL,
  state TEXT NOT NULL, commit_id TEXT NOT NULL, submitted_at TEXT);
CREATE TABLE IF NOT EXISTS review_comments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, issue_id INTEGER NOT NULL, review_id INTEGER, user_id INTEGER NOT NULL,
  body TEXT NOT NULL, path TEXT NOT NULL, commit_id TEXT NOT NULL, line INTEGER, side TEXT, diff_hunk TEXT NOT NULL,
  reply_to INTEGER, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS statuses (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, sha TEXT NOT NULL, state TEXT NOT NULL,
  context TEXT NOT NULL, description TEXT, target_url TEXT, creator_id INTEGER NOT NULL, created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS statuses_by_sha ON statuses (repo_id, sha);
CREATE TABLE IF NOT EXISTS check_runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, head_sha TEXT NOT NULL, name TEXT NOT NULL,
  status TEXT NOT NULL, conclusion TEXT, details_url TEXT, external_id TEXT, started_at TEXT, completed_at TEXT,
  output TEXT NOT NULL DEFAULT '{}', app_id INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS check_runs_by_sha ON check_runs (repo_id, head_sha);
CREATE TABLE IF NOT EXISTS releases (
  id INTEGER PRIMARY KEY AUTOINCREMENT, repo_id INTEGER NOT NULL, tag_name TEXT NOT NULL, target TEXT NOT NULL,
  name TEXT, body TEXT, draft INTEGER NOT NULL, prerelease INTEGER NOT NULL, author_id INTEGER NOT NULL,
  created_at TEXT NOT NULL, published_at TEXT);
CREATE TABLE IF NOT EXISTS refs (
  repo_id INTEGER NOT NULL, name TEXT NOT NULL, sha TEXT NOT NULL, PRIMARY KEY (repo_id, name));
CREATE TABLE IF NOT EXISTS limits (key TEXT PRIMARY KEY, reset REAL NOT NULL, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS penalties (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, kind TEXT NOT NULL, enforced INTEGER NOT NULL,
  begins REAL NOT NULL, ends REAL NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,
  status INTEGER, user TEXT, key TEXT NOT NULL, is_write INTEGER NOT NULL, is_git INTEGER NOT NULL, fault TEXT,
  in_penalty INTEGER NOT NULL, gap_s REAL, too_soon INTEGER NOT NULL, took_s REAL NOT NULL);
