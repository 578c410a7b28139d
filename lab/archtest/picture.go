package archtest

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	boxWidth, boxHeight = 178, 74
	gap                 = 14
	margin              = 16
	columns             = 4
)

// style works in light and dark themes, without fonts or scripts.
const style = `
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .name { font-size: 15px; font-weight: 600; }
  .may { fill: #52606d; font-size: 10.5px; }
  rect { fill: #f5f7fa; stroke: #7b8794; }
  .lab rect { stroke-dasharray: 5 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb; } .may { fill: #9aa5b1; } rect { fill: #1f2933; stroke: #7b8794; }
  }
`

// Picture draws the layers as SVG: a row for each level, the highest on top, and in each box
// what the folder may import. A folder is one level above the highest that it may import.
func Picture(layers []Layer) string {
	rows := levels(layers)
	var b strings.Builder
	width := 2*margin + columns*boxWidth + (columns-1)*gap
	height := 2*margin + len(rows)*(boxHeight+gap) - gap
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Folders and what they may import">`+"\n", width, height)
	fmt.Fprintf(&b, "<style>%s</style>\n", style)
	for y, row := range rows {
		left := (width - len(row)*boxWidth - (len(row)-1)*gap) / 2
		for x, l := range row {
			drawBox(&b, l, layers, left+x*(boxWidth+gap), margin+y*(boxHeight+gap))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// levels sorts folders into rows, the highest first. A long row is split.
func levels(layers []Layer) (rows [][]Layer) {
	level := map[string]int{}
	highest := 0
	for _, l := range layers {
		for _, m := range l.May {
			level[l.Folder] = max(level[l.Folder], level[m]+1)
		}
		highest = max(highest, level[l.Folder])
	}
	for at := highest; at >= 0; at-- {
		var row []Layer
		for _, l := range layers {
			if level[l.Folder] == at {
				if len(row) == columns {
					rows, row = append(rows, row), nil
				}
				row = append(row, l)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func drawBox(b *strings.Builder, l Layer, all []Layer, x, y int) {
	class := ""
	if l.Folder == "lab" || l.Folder == "scripts" {
		class = ` class="lab"` // not shipped
	}
	fmt.Fprintf(b, `<g%s><rect x="%d" y="%d" width="%d" height="%d" rx="6"/>`, class, x, y, boxWidth, boxHeight)
	line := func(class string, dy int, text string) {
		fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`, class, x+10, y+dy, html.EscapeString(text))
	}
	line("name", 20, l.Folder)
	line("what", 36, l.What)
	may := imports(l, all)
	for i, text := range wrapped(may, 30) {
		line("may", 52+13*i, text)
	}
	b.WriteString("</g>\n")
}

// imports says what a folder may import; a long list as those below that it may not.
func imports(l Layer, all []Layer) string {
	if len(l.May) < 6 {
		return strings.Join(l.May, ", ")
	}
	var missing []string
	for _, below := range all {
		if below.Folder == l.Folder {
			break
		}
		if !slices.Contains(l.May, below.Folder) {
			missing = append(missing, below.Folder)
		}
	}
	if len(missing) == 0 {
		return "all below"
	}
	return "all below but " + strings.Join(missing, ", ")
}

// wrapped breaks text into at most two lines of about n characters.
func wrapped(text string, n int) []string {
	if len(text) <= n {
		return []string{text}
	}
	if at := strings.LastIndex(text[:n], " "); at > 0 {
		return []string{text[:at], text[at+1:]}
	}
	return []string{text}
}
