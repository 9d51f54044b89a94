// Builds the console into dist/, which the crate front-ui embeds. Every text asset gets a brotli and a gzip
// twin beside it, so the server compresses nothing while it serves.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    closeBundle() {
      const folder = here("./dist");
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        // The server writes a nonce into index.html, so that one is sent as it is.
        if (!entry.isFile() || !/\.(js|css|svg|json)$/.test(entry.name)) continue;
        const file = join(entry.parentPath, entry.name);
        const bytes = readFileSync(file);
        const params = {
          [constants.BROTLI_PARAM_QUALITY]: 11,
          [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
        };
        writeFileSync(`${file}.br`, brotliCompressSync(bytes, { params }));
        writeFileSync(`${file}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

// `npm run dev` passes the API on to a server that was started with --no-auth.
const server = process.env.ATOLL_URL ?? "http://127.0.0.1:7300";

export default defineConfig({
  base: "/ui/",
  // The server replaces it with a random value in every answer; see crates/front-ui.
  html: { cspNonce: "ATOLL_NONCE" },
  resolve: { alias: { "@": here("./src") } },
  plugins: [react(), tailwindcss(), precompress()],
  build: {
    target: "es2023",
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    rolldownOptions: { input: [here("./index.html"), here("./docs.html")] },
  },
  server: {
    proxy: {
      "^/(api|openapi.json|health|docs|ui/session|threads|runs|settings|store)": {
        target: server,
        changeOrigin: true,
        ws: true,
        rewriteWsOrigin: true,
        configure: (proxy) => proxy.on("proxyReq", (request) => request.setHeader("origin", server)),
      },
    },
  },
});
