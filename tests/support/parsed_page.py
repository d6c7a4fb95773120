"""A page as a parser sees it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Elements, their attributes, scripts, the text that a reader sees, and the cells of each row of each table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.tables: list[list[int]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append(0)
        elif tag in ("td", "th") and self.tables:
            self.tables[-1][-1] += 1
        elif tag in ("script", "style"):
            self._inside = tag
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data

    def values(self, attribute: str) -> list[str]:
        """Of an attribute, in all elements that have it."""
        return [value for _, name, value in self.attributes if name == attribute]
