"""The page: a Gradio app that asks checkpoints, shows what they see, and checks their certificates; see `__main__.py`.

`reading.py` says what a model does with a question and `layout.py` where its tokens stand. `drawing.py`, `proof.py` and
`comparison.py` write HTML, and `actions.py` answers what the page is asked: all without Gradio. `app.py` holds the widgets.
"""
