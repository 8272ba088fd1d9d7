"""Parts of models of pairs: triangles, outer products, attention with a bias from pairs."""
