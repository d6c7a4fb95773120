"""From what the analyses of a trace found to figures for people, as plain data that Plotly draws."""
