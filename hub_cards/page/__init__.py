"""The page: one HTML file in which certified models answer, and are checked, without Python or a server; see `__main__.py`.

`index.html`, `page.css`, `page.js` and `drawing.js` are what a person sees. In a worker, `network.js` reads safetensors and
computes one layer, `sheets.js` says what each task writes and which ids its tokens have, `solve.js` decodes, and `search.js`
lists all neighbourhoods by a search of its own. `build.py` puts all of it and the models into one file.
"""
