"""The tables of docs/conformance.md."""
import collections

import reference

# Columns of the table of pictures: heading, release.
COLUMNS = (
    ("`hf`, 4.57.6", "transformers-4.57.6"), ("`hf`, 5.24.0", "transformers-5.24.0"), ("`pil-11`, Pillow 11.3.0", "pillow-11.3.0"),
    ("`pil-11`, 12.1.1", "pillow-12.1.1"), ("`pil-12`, 12.3.0", "pillow-12.3.0"), ("`pil-13`, 13.0.0", "pillow-13.0.0"),
    ("`qwen-vl-utils`", "qwen-vl-utils-0.0.14"),
)
STRINGS = "transformers-5.24.0-strings"


def foreseen(rules, c):
    """(outcome, section, words) of the rule for a comparison.  Another release than the first of its profile may also refuse what the
    release of another profile refuses: 4.57.6 with Pillow 11.3.0 what `pil-11` does."""
    own = [r[3:] for r in rules if r[0] == c.picture and (r[1] == "*" or c.profile in r[1].split(",")) and (r[2] == "*" or c.way in r[2].split(","))]
    other = [r[3:] for r in rules if r[0] == c.picture and r[3] == c.outcome and c.release not in reference.FIRST.values()]
    return next(iter(own + other), ("equal", "–", "no rule"))


def percent(share):
    return f"{share:.1%}" if share >= 0.001 else f"{share:.2%}"


def size_of(group):
    """How much those that differ do: share of the bytes over all of them, and the largest step."""
    if all(c.words == "another size" for c in group):
        return "another size"
    return f"{percent(sum(c.share for c in group) / len(group))} of the bytes, by up to {max(c.most for c in group):.0f}"


def cell(group):
    """Outcomes of the pictures of one kind in one release.  A picture counts once: with its worst way."""
    order = ("differs", "refuses", "reads", "refused", "equal")
    worst = {}
    for c in group:
        if c.picture not in worst or order.index(c.outcome) < order.index(worst[c.picture]):
            worst[c.picture] = c.outcome
    count = collections.Counter(worst.values())
    said = [f"equal ({count['equal']})"] if count["equal"] else []
    if count["refused"]:
        said.append(f"refused ({count['refused']})")
    if count["reads"]:
        said.append(f"S ({count['reads']})")
    if count["refuses"]:
        said.append(f"R ({count['refuses']})")
    if count["differs"]:
        said.append(f"**differ** ({count['differs']}: {size_of([c for c in group if c.outcome == 'differs'])})")
    return ", ".join(said) or "–"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows])


def kinds():
    """(format, kind) in the order of the list of pictures, with their numbers."""
    return collections.Counter((row[1], row[2]) for row in reference.pictures())


def pictures(comparisons, rules):
    groups = collections.defaultdict(list)
    for c in comparisons:
        groups[c.format, c.kind, c.release].append(c)
    rows = [[f"{kind_of_file}, {kind}", str(n)] + [cell(groups[kind_of_file, kind, release]) for _, release in COLUMNS]
            for (kind_of_file, kind), n in sorted(kinds().items(), key=lambda item: list(dict.fromkeys(k[0] for k in kinds())).index(item[0][0]))]
    total = collections.defaultdict(list)
    for c in comparisons:
        total[c.release].append(c)
    rows.append(["**all**", str(sum(kinds().values()))] + [cell(total[release]) for _, release in COLUMNS])
    out = [f"{sum(kinds().values())} pictures.  Releases: {', '.join(f'`{name}`' for name in reference.RELEASES)}.", "",
           table(["pictures", "n", *(heading for heading, _ in COLUMNS)], rows), "", "### What is not equal, and by which rule", "", listed(comparisons, rules),
           "", "### transformers 5.24.0 given paths", "", strings(groups)]
    return "\n".join(out) + "\n"


def listed(comparisons, rules):
    """The pictures that are not equal, those of one rule together."""
    groups = collections.defaultdict(list)
    for c in comparisons:
        if c.release == STRINGS or c.outcome in ("equal", "refused"):
            continue
        groups[foreseen(rules, c)[1:], c.outcome].append(c)
    says = {"reads": "S", "refuses": "R", "differs": "differ"}
    rows = []
    for ((section, words), outcome), group in sorted(groups.items()):
        names = list(dict.fromkeys(c.picture.rsplit("/", 1)[1] for c in group))
        releases = [release for release in reference.RELEASES if any(c.release == release for c in group)]
        everywhere = len(releases) == len(COLUMNS)
        how = f": {size_of(group)}" if outcome == "differs" else ""
        rows.append([says[outcome] + how, section, words, ", ".join(f"`{n}`" for n in names), "all" if everywhere else ", ".join(releases)])
    return table(["outcome", "section", "rule", "pictures", "releases"], rows)


def strings(groups):
    rows = []
    for kind_of_file in dict.fromkeys(k[0] for k in kinds()):
        group = [c for (f, _, release), g in groups.items() if f == kind_of_file and release == STRINGS for c in g]
        if not group:
            continue
        odd = collections.defaultdict(list)
        for c in group:
            if c.outcome in ("differs", "reads", "refuses"):
                odd[c.outcome, c.kind].append(c.picture.rsplit("/", 1)[1].removeprefix(kind_of_file.lower() + "-").rsplit(".", 1)[0])
        said = [f"{ {'differs': 'differ', 'reads': 'S', 'refuses': 'R'}[outcome]}, {kind}: {len(names)}" for (outcome, kind), names in sorted(odd.items())]
        rows.append([kind_of_file, cell(group), "; ".join(said) or "–"])
    return table(["pictures", "outcome", "by kind"], rows)


def distances(results, folder):
    """How far the profiles' references lie apart, on the pictures that both read (orientation applied, alpha dropped)."""
    import numpy
    way = "apply/drop"
    pairs = [("hf", "pil-11"), ("hf", "pil-12"), ("hf", "pil-13"), ("hf", "qwen-vl-utils"), ("pil-11", "pil-12"), ("pil-11", "pil-13"), ("pil-12", "pil-13"),
             ("pil-13", "qwen-vl-utils")]
    rows = []
    for first, second in pairs:
        if not {reference.FIRST[first], reference.FIRST[second]} <= set(results):
            continue
        ours, theirs = (results[reference.FIRST[p]] for p in (first, second))
        n = differing = values = bytes_apart = total = most = 0
        for picture, *_ in reference.pictures():
            a, b = ours[picture, way], theirs[picture, way]
            if "refused" in a or "refused" in b or a["grid"] != b["grid"]:
                continue
            n += 1
            differing += a["uint8"] != b["uint8"]
            values += a["float32"] != b["float32"]
            x, y = (numpy.load(folder / "patches" / f"{r['uint8']}.npy").astype(int) for r in (a, b))
            apart = abs(x - y)
            total += x.size
            bytes_apart += int((apart > 0).sum())
            most = max(most, int(apart.max()))
        rows.append([f"`{first}` – `{second}`", str(n), str(differing), f"{bytes_apart / total:.3%}", str(most), str(values)])
    return table(["references", "pictures", "differ in bytes", "bytes", "by up to", "differ in float32"], rows) + "\n"


def texts(dialects, templates):
    rows = [[f"`{name}`", release, str(n), f"equal ({equal})" + (f", refused ({refused})" if refused else "")
             + (f", **differ ({len(odd)})**: {', '.join(odd)}" if odd else "")] for name, release, n, equal, refused, odd in templates]
    forms = [[f"`{form}`", str(n), f"equal ({equal})" + (f", **differ ({len(odd)})**: {', '.join(odd)}" if odd else "")]
             for form, (n, equal, odd) in dialects.items()]
    return "\n".join([table(["template", "beside", "conversations × rules", "outcome"], rows), "",
                      table(["dialect", "records", "outcome"], forms)]) + "\n"
