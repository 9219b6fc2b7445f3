// Run by node in a folder that has @octokit/rest: a third client that none of us wrote walks the forge.
// Arguments: base URL, owner/name, token of a writer, SHA on branch "walk" (pushed, not in the default branch).
// Prints one JSON object; an unexpected answer ends it with a message and status 1.
import { Octokit } from "@octokit/rest";

const [baseUrl, fullName, token, sha] = process.argv.slice(2);
const [owner, repo] = fullName.split("/");
const kit = new Octokit({ auth: token, baseUrl, log: { debug() {}, info() {}, warn() {}, error() {} } });
const at = { owner, repo };

function must(condition, said) {
  if (!condition) throw new Error(said);
}

async function status(call) {
  try {
    return (await call).status;
  } catch (error) {
    return error.status;
  }
}

const me = await kit.rest.users.getAuthenticated();
for (let i = 0; i < 7; i += 1) {
  await kit.rest.issues.create({ ...at, title: `Walk ${i}`, labels: ["walk"] });
}
const all = await kit.paginate(kit.rest.issues.listForRepo, { ...at, labels: "walk", per_page: 3 });
must(all.length === 7, `paginate found ${all.length} of 7 issues`);
const first = { ...at, issue_number: all[0].number };
const comment = await kit.rest.issues.createComment({ ...first, body: "hello" });
await kit.rest.issues.updateComment({ ...at, comment_id: comment.data.id, body: "bye" });
const comments = await kit.paginate(kit.rest.issues.listComments, first);
must(comments.map((c) => c.body).join() === "bye", "the comment was not edited");
await kit.rest.issues.addLabels({ ...first, labels: ["a b/c"] });
const labels = await kit.rest.issues.removeLabel({ ...first, name: "a b/c" });
must(labels.data.map((l) => l.name).join() === "walk", "the label was not removed");

const seen = await kit.rest.repos.get(at);
const again = await status(kit.rest.repos.get({ ...at, headers: { "if-none-match": seen.headers.etag } }));
must(again === 304, `a conditional request gave ${again}`);
const missing = await status(kit.rest.issues.get({ ...at, issue_number: 99999 }));
must(missing === 404, `an unknown issue gave ${missing}`);

await kit.rest.repos.createCommitStatus({ ...at, sha, state: "success", context: "ci" });
const combined = await kit.rest.repos.getCombinedStatusForRef({ ...at, ref: "walk" });
must(combined.data.state === "success", `the combined status is ${combined.data.state}`);
const pull = await kit.rest.pulls.create({ ...at, title: "Walk", head: "walk", base: "main", body: "Fixes #1" });
const twice = await status(kit.rest.pulls.create({ ...at, title: "Walk", head: "walk", base: "main" }));
must(twice === 422, `a second pull request gave ${twice}`);
const files = await kit.paginate(kit.rest.pulls.listFiles, { ...at, pull_number: pull.data.number });
const stale = { ...at, pull_number: pull.data.number, sha: "0".repeat(40) };
const refused = await status(kit.rest.pulls.merge(stale));
must(refused === 409, `a stale head gave ${refused}`);
const merged = await kit.rest.pulls.merge({ ...at, pull_number: pull.data.number, merge_method: "rebase" });
const closed = await kit.rest.issues.get({ ...at, issue_number: 1 });
must(closed.data.state === "closed", "the named issue was not closed");
const compare = await kit.rest.repos.compareCommitsWithBasehead({ ...at, basehead: `main...${merged.data.sha}` });
must(compare.data.status === "identical", `main and the merge are ${compare.data.status}`);
const release = await kit.rest.repos.createRelease({ ...at, tag_name: "v1", name: "One", generate_release_notes: true });
const byTag = await kit.rest.repos.getReleaseByTag({ ...at, tag: "v1" });
must(byTag.data.id === release.data.id, "the release is not found by its tag");
const content = await kit.rest.repos.getContent({ ...at, path: "README.md", ref: "v1" });
const text = Buffer.from(content.data.content, "base64").toString();
const permission = await kit.rest.repos.getCollaboratorPermissionLevel({ ...at, username: "reader" });

console.log(
  JSON.stringify({
    login: me.data.login,
    files: files.map((f) => f.filename),
    text,
    permission: permission.data.permission,
    notes: release.data.body,
  }),
);
