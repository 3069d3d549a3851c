/**
 * Builds the package: dist/*.js (minified ES modules, one per entry point), dist/types (for TypeScript), build/ (single
 * modules for the tests), the demo and the dashboard. Checks types and size. Files that the server serves are copied into
 * the Python package; `--check` only compares them.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const LIMIT = 6_400; // bytes of dist/herenow.js, minified and gzipped
const PACKAGE = fileURLToPath(new URL("../../src/herenow/", import.meta.url));
const SHIPPED = {
  "api/static/herenow.js": "dist/herenow.js",
  "api/static/green-dot.js": "dist/green-dot.js",
  "api/static/rest.js": "dist/rest.js",
  "demo/static/index.html": "demo/index.html",
  "demo/static/demo.js": "build/page/main.js",
  "demo/static/demo.css": "build/page/demo.css",
  "api/static/dashboard/index.html": "dashboard/index.html",
  "api/static/dashboard/dashboard.js": "build/board/main.js",
  "api/static/dashboard/dashboard.css": "build/board/dashboard.css",
  "api/static/dashboard/uplot.js": "build/board/uplot.js",
  "api/static/dashboard/uplot.LICENSE": "node_modules/uplot/LICENSE",
};
const check = process.argv.includes("--check");

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
for (const folder of ["dist", "build"]) rmSync(folder, { recursive: true, force: true });

const common = { format: "esm", target: "es2022", charset: "utf8", logLevel: "warning" };
await build({
  ...common,
  entryPoints: { herenow: "src/index.ts", "green-dot": "src/green-dot.ts", rest: "src/rest.ts", react: "src/react.ts" },
  bundle: true,
  minify: true,
  external: ["react"],
  outdir: "dist",
});
await build({ ...common, entryPoints: modules("src"), outdir: "build" });
await build({ ...common, entryPoints: modules("demo"), outdir: "build/demo" });
await build({ ...common, entryPoints: ["demo/main.ts", "demo/demo.css"], bundle: true, minify: true, external: ["/sdk/*"], outdir: "build/page" });
await build({ ...common, entryPoints: modules("dashboard"), outdir: "build/dashboard" });
await build({ ...common, entryPoints: ["dashboard/main.ts", "dashboard/dashboard.css"], bundle: true, minify: true, external: ["/dashboard/*"], outdir: "build/board" });
const { version } = JSON.parse(readFileSync("node_modules/uplot/package.json", "utf8"));
await build({
  ...common,
  entryPoints: { uplot: "node_modules/uplot/dist/uPlot.esm.js" },
  minify: true,
  legalComments: "none",
  banner: { js: `/* uPlot ${version}, https://github.com/leeoniya/uPlot, under the MIT licence: see uplot.LICENSE */` },
  outdir: "build/board",
});

for (const project of [".", "demo", "dashboard"]) {
  const { status } = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc", "--project", project], { stdio: "inherit" });
  if (status !== 0) process.exit(1);
}

const size = gzipSync(readFileSync("dist/herenow.js"), { level: 9 }).length;
console.log(`dist/herenow.js: ${size} bytes min+gzip of ${LIMIT}`);
if (size > LIMIT) fail(`dist/herenow.js has ${size} bytes min+gzip; at most ${LIMIT} are allowed`);

for (const [name, built] of Object.entries(SHIPPED)) {
  const place = PACKAGE + name;
  const fresh = readFileSync(built, "utf8");
  if (check && (!existsSync(place) || readFileSync(place, "utf8") !== fresh)) fail(`src/herenow/${name} is not what clients/js builds: npm run build`);
  mkdirSync(dirname(place), { recursive: true });
  if (!check) writeFileSync(place, fresh);
}

function modules(folder) {
  return readdirSync(folder).filter((name) => name.endsWith(".ts")).map((name) => `${folder}/${name}`);
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
