/**
 * Builds the package: dist/*.js (small ES modules, one file per entry), dist/types (for TypeScript), build/ (the modules
 * one by one, for the tests). Checks the types and the size on the way. The files that pages load from the server
 * are copied into the Python package; `--check` only compares them.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const LIMIT = 6_000; // bytes of dist/herenow.js, minified and gzipped
const SHIPPED = ["herenow.js", "green-dot.js", "rest.js"];
const STATIC = fileURLToPath(new URL("../../src/herenow/api/static/", import.meta.url));
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
await build({ ...common, entryPoints: readdirSync("src").map((name) => `src/${name}`), outdir: "build" });

const { status } = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc"], { stdio: "inherit" });
if (status !== 0) process.exit(1);

const size = gzipSync(readFileSync("dist/herenow.js"), { level: 9 }).length;
console.log(`dist/herenow.js: ${size} bytes min+gzip of ${LIMIT}`);
if (size > LIMIT) fail(`dist/herenow.js has ${size} bytes min+gzip; at most ${LIMIT} are allowed`);

mkdirSync(STATIC, { recursive: true });
for (const name of SHIPPED) {
  const fresh = readFileSync(`dist/${name}`, "utf8");
  if (!check) writeFileSync(STATIC + name, fresh);
  else if (readFileSync(STATIC + name, "utf8") !== fresh) fail(`src/herenow/api/static/${name} is not what clients/js builds: npm run build`);
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
