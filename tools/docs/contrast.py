"""Check the contrast of the built site's text colours, in both schemes: at least 4.5, the
level AA of WCAG 2.2. The argument is the folder of the site."""

import colorsys
import pathlib
import re
import sys

MINIMUM = 4.5
CODE = "code-hl-{}-color"
PAIRS = [
    ("default-fg-color", "default-bg-color"),
    ("default-fg-color--light", "default-bg-color"),
    ("typeset-a-color", "default-bg-color"),
    ("primary-bg-color", "primary-fg-color"),
    ("code-fg-color", "code-bg-color"),
    ("admonition-fg-color", "admonition-bg-color"),
] + [
    (CODE.format(kind), "code-bg-color")
    for kind in "number special function constant keyword string name operator punctuation comment generic variable".split()
]


def variables(site, scheme):
    """The variables in effect, from the theme's files and then ours."""
    found = {}
    rules = {":root", f"[data-md-color-scheme={scheme}]", "[data-md-color-primary=teal]",
             f"[data-md-color-scheme={scheme}][data-md-color-primary=teal]"}
    for name in ("main.*.css", "palette.*.css", "extra.css"):
        (path,) = site.glob("**/stylesheets/" + name)
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        blocks = re.findall(r"([^{}]+)\{([^{}]*)\}", text)
        # A selector of two attributes is stronger.
        for selectors, body in sorted(blocks, key=lambda b: "][" in b[0]):
            if rules & {s.strip().replace('"', "") for s in selectors.split(",")}:
                found.update(re.findall(r"--md-([\w-]+)\s*:\s*([^;]+)", body))
    return found


def colour(value, known):
    """(red, green, blue, alpha), each from 0 to 1."""
    value = re.sub(r"var\(--md-([\w-]+)\)", lambda m: known[m[1]], value.strip())
    if "var(" in value:
        return colour(value, known)
    if value.startswith("#"):
        digits = value[1:] if len(value) > 5 else "".join(2 * d for d in value[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in range(0, len(digits), 2)]
        return (*parts, 1.0)[:4]
    hue, saturation, light, alpha = [float(n) for n in re.findall(r"[\d.]+", value)]
    return (*colorsys.hls_to_rgb(hue / 360, light / 100, saturation / 100), alpha)


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(front, back):
    blended = [f * front[3] + b * (1 - front[3]) for f, b in zip(front, back)]
    low, high = sorted([luminance(blended), luminance(back[:3])])
    return (high + 0.05) / (low + 0.05)


def main():
    failed = False
    for scheme in ("default", "slate"):
        known = variables(pathlib.Path(sys.argv[1]), scheme)
        for front, back in PAIRS:
            ratio = contrast(colour(known[front], known), colour(known[back], known))
            if ratio < MINIMUM:
                failed = True
                print(f"{scheme}: {front} on {back} has a contrast of {ratio:.2f}, less than {MINIMUM}: set it in docs/stylesheets/extra.css")
    sys.exit(failed)


main()
