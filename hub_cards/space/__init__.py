"""The page: a Gradio app that asks checkpoints, shows what they see, and checks their certificates; see `__main__.py`.

`reading.py` says what a model does with a question, `layout.py` where its tokens stand, and `drawing.py`, `proof.py` and
`comparison.py` write that as HTML, all without Gradio. `app.py` holds the widgets.
"""
