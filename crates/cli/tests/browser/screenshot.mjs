// Takes the picture of the dashboard for the documents, after some seconds of load.

import { createRequire } from "node:module";

const [modules, url, seconds, file] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1200, height: 900 }, colorScheme: "light" });
page.setDefaultTimeout(300_000);
await page.goto(url);
await page.waitForFunction(() => document.getElementById("map-summary").textContent.includes("hottest"));
await page.waitForTimeout(1000 * Number(seconds));
await page.locator("#explain-form, #explanation, #cell, footer").evaluateAll((nodes) => nodes.forEach((node) => node.remove()));
await page.screenshot({ path: file, fullPage: true });
await browser.close();
