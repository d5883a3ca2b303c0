"""What a notebook shows of a run: what a terminal says, as HTML. The verdict comes first."""

from __future__ import annotations

from markupsafe import Markup

from cirl_gym.files import escaped
from irl.report.section import Line, Report, Table


def notebook(report: Report, *sections: str) -> str:
    """Verdict and headline of a report, and what its sections of these names show on a terminal."""
    parts = [Markup("<h3>{}</h3>").format(escaped(report.verdict))]
    parts += [Markup("<p>{}</p>").format(escaped(sentence)) for sentence in report.headline]
    for section in report.sections:
        for part in section.terminal if section.name in sections else ():
            if isinstance(part, Table):
                parts.append(_table(part))
            else:
                parts.append(Markup("<p>{}</p>").format(escaped(part.text if isinstance(part, Line) else part)))
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def _table(table: Table) -> Markup:
    def row(cells: list[str], cell: str) -> Markup:
        inside = Markup("").join(Markup("<{0}>{1}</{0}>").format(Markup(cell), escaped(text)) for text in cells)
        return Markup("<tr>{}</tr>").format(inside)

    body = Markup("").join(row(cells, "td") for cells in table.rows)
    title = Markup("<caption>{}</caption>").format(escaped(table.title))
    return Markup("<table>{}<thead>{}</thead><tbody>{}</tbody></table>").format(title, row(table.head, "th"), body)
