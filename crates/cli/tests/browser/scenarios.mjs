// The dashboard in headless Chromium: scenarios of `tests/whole/browser.rs`, which starts the dashboards, and
// changes the daemons when a scenario asks. A line "passed NAME" or "failed NAME: REASON" for each scenario.
// Scenarios wait for conditions, up to a limit far beyond any delay of a busy machine.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [modules, pictures, real, many, few, wide, hostile] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const LIMIT = 90_000;
const WIDTH = 1280;

const lines = createInterface({ input: process.stdin });
const answers = [];
let isOver = false;
lines.on("line", () => answers.shift()?.());

// Asks the test to change a daemon, and waits until the change is made.
function ask(change) {
  console.log(`do ${change}`);
  return new Promise((resolve) => answers.push(resolve));
}

function check(holds, what) {
  if (!holds) throw new Error(what);
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });

// Runs a scenario on a page of its own. Errors of scripts and violations of the content's policy fail it.
async function scenario(name, url, run, options = {}) {
  const began = performance.now();
  const context = await browser.newContext({ viewport: { width: WIDTH, height: 900 }, ...options });
  context.setDefaultTimeout(LIMIT);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) errors.push(message.text());
  });
  try {
    await page.goto(url);
    await run(page);
    check(!errors.length, errors.join("; "));
    console.log(`passed ${name}, after ${Math.round(performance.now() - began)} ms`);
  } catch (error) {
    await page.screenshot({ path: join(pictures, `${name.replaceAll(" ", "-")}.png`), fullPage: true }).catch(() => null);
    console.log(`failed ${name}: ${String(error.message).replaceAll("\n", " ")} ${errors.join("; ")}`);
  }
  await context.close();
}

const word = (page, text) => page.locator("#word", { hasText: new RegExp(`^${text}$`) }).waitFor();
const text = (page, id) => page.locator(`#${id}`).textContent();
const until = (page, condition, argument) => page.waitForFunction(condition, argument, { timeout: LIMIT });

// Waits until the map has a cell of some colour beside that of empty cells, and returns colours of cells.
async function mapIsDrawn(page) {
  await until(page, () => document.getElementById("map-summary").textContent.includes("A cell is"));
}

// Colour of the middle of a cell.
const colour = (page, place) => page.evaluate((place) => {
  const canvas = document.getElementById("map");
  const columns = Number(canvas.dataset.columns);
  const side = canvas.width / columns;
  const [x, y] = [(place % columns) * side + side / 2, Math.floor(place / columns) * side + side / 3];
  return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3).join(" ");
}, place);

// Where to click for a cell.
async function positionOf(page, place) {
  const { columns, side } = await page.evaluate(() => {
    const canvas = document.getElementById("map");
    return { columns: Number(canvas.dataset.columns), side: canvas.clientWidth / Number(canvas.dataset.columns) };
  });
  return { x: (place % columns) * side + side / 2, y: Math.floor(place / columns) * side + side / 2 };
}

async function withRealDaemons() {
  const safe = scenario("volume that is safe", real, async (page) => {
    await word(page, "Safe");
    await until(page, () => document.querySelectorAll("#devices tbody tr").length === 2);
    await until(page, () => ["response", "share", "busy", "flight"].every((id) => document.querySelector(`#${id} canvas`)));
    await until(page, () => document.querySelector('#tile-writes dd').textContent.endsWith("/s"));
    await until(page, () => /[0-9.]+ %/.test(document.querySelector("#devices tbody td:nth-child(7) span").textContent));
    check((await text(page, "sentence")).includes("costs nothing"), await text(page, "sentence"));
  });

  const map = scenario("click on the map explains a byte", real, async (page) => {
    await mapIsDrawn(page);
    const cell = await page.evaluate(async () => (await (await fetch("/api/volumes/vault/map")).json()).cell_bytes);
    const written = (16 << 20) / cell;
    await page.locator("#map").click({ position: await positionOf(page, written) });
    await until(page, () => document.getElementById("explanation").textContent.includes("Why:"));
    const said = await text(page, "explanation");
    check(said.startsWith(`Byte ${16 << 20} `) && /at home on d[01] \((SSD|disk), .*\.img\)/.test(said), said);
    check(said.includes("A second copy is on d"), said);
    check((await text(page, "cell")).includes("from 16.0 MiB"), await text(page, "cell"));
    // A cell without data.
    const empty = (40 << 20) / cell;
    await page.locator("#map").click({ position: await positionOf(page, empty) });
    await until(page, () => document.getElementById("explanation").textContent.includes("never written"));
    // Any byte by its number; a byte beyond the end is an error in words.
    await page.locator("#offset").fill("999999999999999");
    await page.locator("#explain-form button").click();
    await until(page, () => document.getElementById("explanation").textContent.includes("beyond"));
    // The data in question was read all the time, so its cell is hot.
    await until(page, () => document.getElementById("map-summary").textContent.includes("hottest"));
    const [hot, cold, none] = [await colour(page, written), await colour(page, written + 8), await colour(page, empty)];
    check(new Set([hot, cold, none]).size === 3, `colours ${hot}, ${cold}, ${none}`);
    await page.locator('[data-view="place"]').click();
    check(await colour(page, written) !== none, "the view of places shows the data");
    // The device in question.
    await page.locator("#map-device").selectOption({ label: "d1 (hdd)" });
    await until(page, () => document.getElementById("map-summary").textContent.includes("A cell is"));
    await page.locator("#map").hover({ position: await positionOf(page, written) });
    await until(page, () => document.getElementById("cell").textContent.includes("100 % on d1"));
  });

  const past = scenario("last hour and day say since when", real, async (page) => {
    await word(page, "Safe");
    for (const range of ["hour", "day"]) {
      await page.locator(`[data-range="${range}"]`).click();
      await until(page, () => document.getElementById("since").textContent.startsWith("Figures since "));
      await until(page, (range) => fetch(`/api/volumes/vault/history?range=${range}`).then((answer) => answer.json())
        .then((past) => past.range === range && past.devices.some((device) => device.utilisation.length > 0)), range);
      await until(page, () => /ms, .* %, .* % busy/.test(document.getElementById("legend").textContent));
    }
  });

  await Promise.all([safe, map, past]);
  await scenario("volume that degrades while the page is open", real, async (page) => {
    await word(page, "Safe");
    await ask("fail");
    await word(page, "Degraded");
    await until(page, () => document.querySelector('#devices tr[data-state="failed"] .state').textContent.startsWith("failed"));
    check(await page.locator("#verdict").getAttribute("data-level") === "warning", "the colour is amber");
    await page.locator('#alerts li[data-level="warning"]', { hasText: "device-failed d1" }).waitFor();
    check((await text(page, "alerts-since")).includes("now. Since "), await text(page, "alerts-since"));
    // The page returns the device, after a question.
    await page.locator('#devices tr[data-state="failed"] button', { hasText: "Return" }).click();
    await page.locator("#confirm button", { hasText: "Do it" }).click();
    await word(page, "Safe");
    await page.locator('#alerts li[data-level="ended"]', { hasText: "device-failed d1" }).waitFor();
    await until(page, () => document.getElementById("alerts-since").textContent.startsWith("All have ended."));
  });

  await scenario("daemon that dies and returns", real, async (page) => {
    await word(page, "Safe");
    await ask("kill");
    await word(page, "Not served");
    await until(page, () => document.querySelector("#volume section").hidden);
    check(await page.locator("#alerts-since").isVisible(), "the alerts stay");
    check((await text(page, "sentence")).includes("braid serve vault"), await text(page, "sentence"));
    await ask("serve");
    await word(page, "Safe");
    await until(page, () => !document.querySelector("#volume section").hidden);
    await mapIsDrawn(page);
  });
}

// Contrast of two colours as the guidelines for web content define it.
function contrast(colours) {
  const [one, other] = colours.map((colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [red, green, blue] = parts.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  });
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

async function withMadeUpVolumes() {
  await scenario("64 volumes", many, async (page) => {
    await until(page, () => document.querySelectorAll("#volumes button").length === 64);
    // The worst volume comes first, and speaks for all.
    await until(page, () => document.getElementById("name").textContent === "v37");
    await word(page, "Degraded");
    check((await text(page, "sentence")).includes("63 of 64"), await text(page, "sentence"));
    await page.locator("#volumes button", { hasText: "v12" }).click();
    await until(page, () => document.getElementById("name").textContent === "v12");
    check(page.url().endsWith("#v12"), page.url());
    await until(page, () => document.querySelectorAll("#devices tbody tr").length === 2);
    await page.goto(`${many}#v63`);
    await until(page, () => document.getElementById("name").textContent === "v63");
    await page.goto(`${many}#%E0%A4%A`);
    await until(page, () => document.getElementById("name").textContent === "v63");
  });

  await scenario("1,024 devices", wide, async (page) => {
    await until(page, () => document.querySelectorAll("#devices tbody tr").length === 200);
    check((await text(page, "more")).startsWith("824 more"), await text(page, "more"));
    // The failed device comes first.
    check((await page.locator("#devices tbody tr").first().getAttribute("data-device")) === "d1023", "first row");
    await until(page, () => document.querySelectorAll("#legend li").length === 2);
    check(await page.locator("#map-device option").count() === 1025, "the map can show each device");
    await mapIsDrawn(page);
    await page.locator("#map").click({ position: { x: 5, y: 5 } });
    await until(page, () => document.getElementById("cell").textContent.includes("most on d1000"));
  });

  await scenario("hostile names", hostile, async (page) => {
    await until(page, () => document.querySelectorAll("#devices tbody tr").length === 2);
    await mapIsDrawn(page);
    await page.locator("#map").click({ position: { x: 5, y: 5 } });
    await until(page, () => document.getElementById("explanation").textContent.includes("<img"));
    await until(page, () => document.getElementById("notes").textContent.includes("<img"));
    await until(page, () => document.getElementById("alerts").textContent.includes("<img"));
    check((await text(page, "devices")).includes("<img") && (await text(page, "cell")).includes("<img"), "names are text");
    const made = await page.evaluate(() => [window.hacked, document.title.includes("hacked"), ...[...document.querySelectorAll("img, iframe, script:not([src]), [onerror], object")].map((node) => node.outerHTML)]);
    check(made.length === 2 && made[0] === undefined && made[1] === false, String(made));
  });

  await scenario("390 pixels wide", few, async (page) => {
    await until(page, () => document.querySelectorAll("#devices tbody tr").length === 2);
    await mapIsDrawn(page);
    const [inner, scroll] = await page.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
    check(inner === 390 && scroll <= 390, `${scroll} of ${inner} pixels`);
    const outside = await page.evaluate(() => [...document.querySelectorAll("main *")]
      .filter((node) => node.getBoundingClientRect().right > 391 && node.getClientRects().length).map((node) => node.id || node.tagName));
    check(!outside.length, `beyond the edge: ${outside}`);
    await page.locator("#map").tap({ position: { x: 20, y: 20 } });
    await until(page, () => document.getElementById("explanation").textContent.includes("Why:"));
    // Labels stand beside the values, since the table has no head here.
    const label = await page.evaluate(() => getComputedStyle(document.querySelector("#devices tbody td.state"), "::before").content);
    check(label.includes("State"), label);
  }, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });

  await scenario("advice about the policy", few, async (page) => {
    await page.locator("#advice-begin").click();
    await page.locator("#confirm button", { hasText: "Do it" }).click();
    await until(page, () => document.querySelectorAll("#advice tbody tr").length === 2);
    const rows = await page.locator("#advice tbody tr").allTextContents();
    check(rows[0].startsWith("ssd-first") && rows[0].includes("−") && rows[1].startsWith("hdd-only") && rows[1].includes("present"), String(rows));
    check(await page.locator("#advice tr[data-advised]").count() === 1, "one policy is advised");
    const words = await text(page, "advice-words");
    check(words.includes("Change to ssd-first") && words.includes("Advice of "), words);
    await page.locator("#volumes button", { hasText: "v02" }).click();
    await until(page, () => document.getElementById("advice").hidden);
    check(await text(page, "advice-words") === "", "advice about another volume");
  });

  await scenario("keyboard only", few, async (page) => {
    await until(page, () => document.querySelectorAll("#volumes button").length === 3);
    await mapIsDrawn(page);
    // What has the focus, and whether the page shows it.
    const focused = () => page.evaluate(() => {
      const node = document.activeElement;
      const name = node.id || node.dataset.range || node.dataset.view || node.className || node.textContent.trim() || node.tagName;
      return { name, shown: node === document.body || getComputedStyle(node).outlineStyle !== "none" };
    });
    // Tabs until a node has the focus; every node on the way shows that it has the focus.
    const tabTo = async (wanted) => {
      for (let i = 0; i < 100; i += 1) {
        await page.keyboard.press("Tab");
        const { name, shown } = await focused();
        check(shown, `the focus on ${name} is visible`);
        if (name === wanted) return;
      }
      throw new Error(`no tab reaches ${wanted}`);
    };
    await tabTo("skip");
    await tabTo("v02");
    await page.keyboard.press("Enter");
    await until(page, () => document.getElementById("name").textContent === "v02");
    await mapIsDrawn(page);
    await tabTo("hour");
    await page.keyboard.press("Space");
    check(await page.locator('[data-range="hour"]').getAttribute("aria-pressed") === "true", "the hour is chosen");
    await tabTo("map");
    await page.keyboard.press("ArrowRight");
    await until(page, () => document.getElementById("cell").textContent.includes("from 0 B"));
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    const chosen = await text(page, "cell");
    check(!chosen.includes("from 0 B"), chosen);
    await page.keyboard.press("Enter");
    await until(page, () => document.getElementById("explanation").textContent.includes("Why:"));
    await tabTo("offset");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("4096");
    await page.keyboard.press("Enter");
    await until(page, () => document.getElementById("offset").value === "4096");
    await until(page, () => document.getElementById("explanation").textContent.startsWith("Byte 4096"));
  });

  await scenario("dark and light", few, async (page) => {
    await mapIsDrawn(page);
    const seen = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await until(page, (scheme) => matchMedia(`(prefers-color-scheme: ${scheme})`).matches, colorScheme);
      const pairs = await page.evaluate(() => {
        const behind = (node) => {
          const found = getComputedStyle(node).backgroundColor;
          return /^rgba\(.*, 0\)$/.test(found) && node.parentElement ? behind(node.parentElement) : found;
        };
        const nodes = ["#word", "#sentence", "#facts", "#map-summary", ".tiles dt", ".tiles dd", "#devices td small", "#devices th", "#alerts-since", "footer"];
        return nodes.map((name) => [name, getComputedStyle(document.querySelector(name)).color, behind(document.querySelector(name))]);
      });
      for (const [name, ...colours] of pairs) {
        check(contrast(colours) >= 4.5, `${colorScheme}: ${name}: ${colours.join(" on ")}: ${contrast(colours)}`);
      }
      seen.push(JSON.stringify([pairs, await colour(page, 0), await colour(page, 4000)]));
    }
    check(seen[0] !== seen[1], "both schemes look alike");
  });
}

lines.on("close", () => process.exit(isOver ? 0 : 1));
await Promise.all([withRealDaemons(), withMadeUpVolumes()]);
await browser.close();
isOver = true;
lines.close();
