// node build.mjs FOLDER: writes main.js and main.css of the page into the folder.
import { build } from 'esbuild';

await build({
  entryPoints: [new URL('main.jsx', import.meta.url).pathname],
  outdir: process.argv[2],
  bundle: true,
  minify: true,
  jsx: 'automatic',
  loader: { '.svg': 'dataurl', '.ttf': 'empty' }, // the font of the code editor, which the page does not have
  // One release of the router for all; the bridge between two of them has nothing to do.
  alias: { 'react-router-dom-v5-compat': 'react-router-dom' },
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning',
}).catch(() => process.exit(1));
