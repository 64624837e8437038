// The page's moving parts: treemap with its path and list, search in the packages, light and dark.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function fileNode([path, bytes], kind) {
  return { name: path.split("/").pop(), bytes, kind, children: [], lines: [`/${path}`] };
}

function partNode(part, layer) {
  const { name, version, bytes, entries, largest } = part;
  const children = largest.map((file) => fileNode(file, layer.kind));
  const rest = bytes - children.reduce((sum, child) => sum + child.bytes, 0);
  if (children.length && rest > 0) children.push({ name: "all other files", bytes: rest, kind: layer.kind, children: [], lines: [] });
  const lines = [version ? `version ${version}` : name ? "" : "in no package's list: directories, what scripts made, and what definitions lay over", `${entries} files and folders`, layer.title];
  return { name: name || "of no package", bytes, kind: layer.kind, children, lines: lines.filter(Boolean) };
}

function layerNode(layer) {
  const lines = [`${amount(layer.size)} to pull`, `${layer.packages} packages`, `held by ${layer.images.join(", ")}`];
  const children = layer.parts.map((part) => partNode(part, layer));
  // A layer of one part: its files at once.
  return { name: layer.title, bytes: layer.uncompressed, kind: layer.kind, lines, children: children.length === 1 && children[0].children.length ? children[0].children : children };
}

function scopeNode(scope) {
  const layers = data.layers.filter((layer) => !scope.images || layer.images.some((image) => scope.images.includes(image)));
  return { name: scope.title, bytes: layers.reduce((sum, layer) => sum + layer.uncompressed, 0), kind: "base", lines: [], children: layers.map(layerNode) };
}

const scopes = [
  { title: "all images" },
  ...(data.node ? [{ title: `a node: ${data.node.join(" + ")}`, images: data.node }] : []),
  ...data.images.map((image) => ({ title: image, images: [image] })),
];

const treemap = new Treemap(byId("treemap"), byId("tip"), (path) => {
  const here = path[path.length - 1];
  byId("crumbs").replaceChildren(...path.flatMap((node, depth) => {
    const last = depth === path.length - 1, crumb = document.createElement(last ? "b" : "button");
    crumb.textContent = last ? `${node.name} (${amount(node.bytes)})` : node.name;
    if (!last) { crumb.type = "button"; crumb.onclick = () => treemap.show(path.slice(0, depth + 1), path[depth + 1]); }
    return depth ? ["›", crumb] : [crumb];
  }));
  const largest = [...here.children].sort((a, b) => b.bytes - a.bytes).slice(0, 14);
  byId("largest").replaceChildren(...largest.map((node) => {
    const row = document.createElement("li");
    row.className = `kind-${node.kind}`; row.style.setProperty("--part", node.bytes / largest[0].bytes); row.title = node.lines.join("\n");
    row.append(...[node.name, amount(node.bytes)].map((text) => Object.assign(document.createElement("span"), { textContent: text })));
    return row;
  }));
});

scopes.forEach((scope, index) => byId("scope").append(new Option(scope.title, index)));
byId("scope").onchange = (event) => treemap.show([scopeNode(scopes[event.target.value])]);
treemap.show([scopeNode(scopes[0])]);

byId("find").oninput = (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of byId("package-table").tBodies[0].rows) {
    const text = `${row.cells[0].textContent} ${row.cells[1].textContent}`.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  byId("found").textContent = `${shown} package${shown === 1 ? "" : "s"}`;
};

byId("theme").onclick = () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
};
