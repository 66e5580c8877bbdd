// Text of the page: numbers with units, and text in nodes. All text of reports is inserted as text.

export const $ = (id) => document.getElementById(id);

export const digits = (value) => value.toFixed(value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2);

export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < 6) [count, unit] = [count / 1024, unit + 1];
  return `${unit ? digits(count) : Math.round(count)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]}`;
}

export function time(ns) {
  if (ns === null || ns === undefined) return "–";
  const [size, unit] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${digits(ns / size)} ${unit}`;
}

export function span(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const found = units.find(([size]) => seconds >= 2 * size);
  return found ? `${Math.round(seconds / found[0])} ${found[1]}` : `${Math.ceil(seconds)} s`;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
export const rate = (count) => `${digits(count)}/s`;
export const left = (seconds) => (seconds === null || seconds === undefined ? "" : `, ${span(seconds)} left`);

export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function make(tag, text, parent, className) {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
}

// Entries of a legend: text after a line of a colour.
export function legend(list, parts) {
  while (list.children.length > parts.length) list.lastChild.remove();
  parts.forEach((part, i) => {
    let item = list.children[i];
    if (!item) {
      item = make("li", "", list);
      make("i", "", item);
      make("span", "", item);
    }
    item.children[0].className = `${part.kind} dash${part.dash ?? 0}`;
    put(item.children[1], part.text);
  });
}
