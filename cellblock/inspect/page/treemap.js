// Squarified treemap (Bruls, Huizing, van Wijk, 2000) of a tree of {name, bytes, children}, as buttons.

// Places `nodes`, the largest first, into `box` {x, y, w, h}: a list of boxes in the same order.
function squarify(nodes, box) {
  const total = nodes.reduce((sum, node) => sum + node.bytes, 0);
  const boxes = [];
  if (!total || box.w <= 0 || box.h <= 0) return nodes.map(() => ({ x: box.x, y: box.y, w: 0, h: 0 }));
  const scale = (box.w * box.h) / total;
  let { x, y, w, h } = box, row = [], rowArea = 0;
  const worst = (area, least, most, side) => Math.max((side * side * most) / (area * area), (area * area) / (side * side * least));
  const settle = () => {
    const side = Math.min(w, h), depth = rowArea / side;
    let along = 0;
    for (const area of row) {
      const length = area / depth;
      boxes.push(w >= h ? { x, y: y + along, w: depth, h: length } : { x: x + along, y, w: length, h: depth });
      along += length;
    }
    if (w >= h) { x += depth; w -= depth; } else { y += depth; h -= depth; }
    row = []; rowArea = 0;
  };
  for (const node of nodes) {
    const area = Math.max(node.bytes * scale, 1e-9), side = Math.min(w, h);
    if (row.length && worst(rowArea, row[row.length - 1], row[0], side) < worst(rowArea + area, area, row[0], side)) settle();
    row.push(area); rowArea += area;
  }
  if (row.length) settle();
  return boxes;
}

// Children that can be seen in `area` px²; those that would be specks become one node to go into.
function visible(node, area) {
  const nodes = node.children.filter((each) => each.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const least = (node.bytes / area) * 90;
  const cut = nodes.findIndex((each) => each.bytes < least);
  if (cut < 1 || nodes.length - cut < 3) return nodes;
  const small = nodes.slice(cut);
  const bytes = small.reduce((sum, each) => sum + each.bytes, 0);
  return [...nodes.slice(0, cut), { name: `${small.length} smaller`, bytes, kind: small[0].kind, children: small, lines: [] }]
    .sort((a, b) => b.bytes - a.bytes);
}

function amount(bytes) {
  let size = bytes;
  for (const unit of ["B", "kB", "MB"]) {
    if (Math.round(size * 10) / 10 < 1000) return unit === "B" ? `${size.toFixed(0)} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(1)} GB`;
}

class Treemap {
  // `changed(path)` is called with the nodes from the root to the one in view.
  constructor(element, tip, changed) {
    this.element = element; this.tip = tip; this.changed = changed; this.path = [];
    element.addEventListener("click", (event) => this.enter(this.nodeAt(event)));
    element.addEventListener("pointermove", (event) => this.hover(event));
    element.addEventListener("pointerleave", () => { tip.hidden = true; });
    element.addEventListener("focusin", (event) => this.point(event.target.node, event.target.getBoundingClientRect()));
    element.addEventListener("focusout", () => { tip.hidden = true; });
    element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw(false)).observe(element);
  }

  show(path, focus) { this.path = path; this.draw(true); this.changed(path); if (focus) (this.tileOf(focus) || this.element.firstChild)?.focus(); }
  enter(node) { if (node?.children?.length) this.show([...this.path, node]); }
  leave() { if (this.path.length > 1) this.show(this.path.slice(0, -1), this.path[this.path.length - 1]); }
  tileOf(node) { return [...this.element.children].find((tile) => tile.node === node || tile.node.children?.includes(node)); }
  nodeAt(event) { return event.target.closest("#treemap > .tile")?.node; }

  draw(fresh) {
    const here = this.path[this.path.length - 1], w = this.element.clientWidth, h = this.element.clientHeight;
    if (!here || !w) return;
    this.tip.hidden = true;
    this.element.classList.toggle("fresh", fresh);
    const nodes = visible(here, w * h), boxes = squarify(nodes, { x: 0, y: 0, w, h });
    this.element.replaceChildren(...nodes.map((node, index) => this.tile(node, boxes[index], index)));
    if (this.element.firstChild) this.element.firstChild.tabIndex = 0;
  }

  tile(node, box, index) {
    const tile = this.box("button", node, box, index);
    tile.type = "button"; tile.tabIndex = -1;
    tile.setAttribute("aria-label", [node.name, amount(node.bytes), ...node.lines].join(", "));
    if (!node.children?.length) tile.setAttribute("aria-disabled", "true");
    else if (box.w > 90 && box.h > 60) {
      tile.classList.add("group");
      const inner = { x: 3, y: 20, w: box.w - 8, h: box.h - 25 };
      const nodes = visible(node, inner.w * inner.h), boxes = squarify(nodes, inner);
      nodes.forEach((each, number) => tile.append(this.box("span", each, boxes[number], number)));
    }
    return tile;
  }

  box(kind, node, box, index) {
    const tile = document.createElement(kind);
    tile.className = `tile kind-${node.kind}`; tile.node = node;
    tile.style.cssText = `left:${box.x}px;top:${box.y}px;width:${box.w}px;height:${box.h}px;--tone:${index % 4}`;
    if (box.w > 34 && box.h > 17) {
      const name = document.createElement("span"), size = document.createElement("small");
      name.className = "name"; name.textContent = node.name; size.textContent = amount(node.bytes);
      const wide = box.w > 110 || (kind === "button" && node.children?.length && box.w > 90 && box.h > 60);
      if (wide || box.h > 50) name.append(size);
      if (!wide && box.h > 34) name.classList.add("two");
      tile.append(name);
    }
    return tile;
  }

  hover(event) {
    const tile = event.target.closest(".tile");
    if (tile) this.point(tile.node, { left: event.clientX, right: event.clientX, top: event.clientY, bottom: event.clientY });
  }

  point(node, at) {
    if (!node) return;
    const here = this.path[this.path.length - 1], share = (100 * node.bytes) / here.bytes;
    const lines = [`${amount(node.bytes)}, ${share < 0.1 ? "under 0.1" : share.toFixed(1)} % of what is shown`, ...node.lines];
    this.tip.replaceChildren(...[node.name, ...lines].map((text) => Object.assign(document.createElement("p"), { textContent: text })));
    this.tip.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = this.tip;
    const under = at.bottom + 16 + h < innerHeight;
    this.tip.style.left = `${Math.max(8, Math.min(at.left + 14, innerWidth - w - 8))}px`;
    this.tip.style.top = `${under ? at.bottom + 16 : Math.max(8, at.top - h - 12)}px`;
  }

  key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape" || event.key === "Backspace") this.leave();
    else if (event.key === "Enter" || event.key === " ") { if (event.target.node?.children?.length) { this.enter(event.target.node); this.element.firstChild?.focus(); } }
    else if (way) this.move(event.target, way);
    else return;
    event.preventDefault();
  }

  // The tile that is nearest in the direction of an arrow; what lies beside it counts twice as far.
  move(from, [dx, dy]) {
    const middle = (tile) => [tile.offsetLeft + tile.offsetWidth / 2, tile.offsetTop + tile.offsetHeight / 2];
    const [x, y] = middle(from);
    let best = null, least = Infinity;
    for (const tile of this.element.children) {
      const [tx, ty] = middle(tile), along = (tx - x) * dx + (ty - y) * dy, beside = Math.abs((tx - x) * dy) + Math.abs((ty - y) * dx);
      if (along > 1 && along + 2 * beside < least) { best = tile; least = along + 2 * beside; }
    }
    if (best) { from.tabIndex = -1; best.tabIndex = 0; best.focus(); }
  }
}
