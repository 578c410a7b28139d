package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/fairlead/fairlead/"
	root   = "agent/status"
)

// TestStatus: docs/reference/status.md is generated from the types and comments of
// agent/status.
func TestStatus(t *testing.T) {
	p := statusPage{t: t, files: map[string][]*ast.File{}, sections: map[string]string{}}
	p.WriteString("# Status JSON\n\nThis page is generated from the Go types of `fairlead status -o json` (and `-o yaml`). " +
		"Fields may be added, and are never renamed or removed ([versioning](../versioning.md)). A field marked *optional* is omitted if it is empty. " +
		"Sections are named by paths, as in `jq`.\n\n## Status\n\n")
	p.section("", root, "Status")
	for i := 0; i < len(p.next); i++ {
		n := p.next[i]
		p.section(n.title, n.dir, n.name)
	}
	compare(t, "status.md", p.String())
}

type statusPage struct {
	strings.Builder
	t *testing.T
	// files are the parsed files of a package, by its folder.
	files map[string][]*ast.File
	// sections has the title of each struct's section, by folder and name.
	sections map[string]string
	next     []struct{ title, dir, name string }
}

// section describes the fields of a struct.
func (p *statusPage) section(title, dir, name string) {
	spec, file := p.typeSpec(dir, name)
	if title != "" {
		fmt.Fprintf(p, "\n## `%s`\n\n", title)
	}
	p.WriteString(header("field", "type", "description"))
	p.fields(title, dir, file, spec.Type.(*ast.StructType))
}

func (p *statusPage) fields(title, dir string, file *ast.File, of *ast.StructType) {
	for _, f := range of.Fields.List {
		tag := fieldTag(f)
		if tag == "" || tag == "-" {
			continue
		}
		field, options, _ := strings.Cut(tag, ",")
		kind := p.kind(title+"."+field, dir, file, f.Type)
		if strings.Contains(options, "omit") {
			kind += ", *optional*"
		}
		text := f.Doc.Text()
		if text == "" {
			p.t.Errorf("%s: the field %s has no comment", fileset.Position(f.Pos()), f.Names[0])
		}
		p.WriteString(row(code(field), kind, prose(inJSON(text, of))))
	}
}

// inJSON replaces the names of fields in a comment by those in JSON.
func inJSON(text string, of *ast.StructType) string {
	for _, f := range of.Fields.List {
		if field, _, _ := strings.Cut(fieldTag(f), ","); field != "" && len(f.Names) == 1 {
			name := regexp.MustCompile(`(^|the |a |in )` + f.Names[0].Name + `\b`)
			text = name.ReplaceAllString(text, "$1`"+field+"`")
		}
	}
	return text
}

var fileset = token.NewFileSet()

func fieldTag(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	text, _ := strconv.Unquote(f.Tag.Value)
	return reflect.StructTag(text).Get("json")
}

var basic = map[string]string{
	"string": "string", "bool": "boolean",
	"int": "integer", "uint8": "integer", "uint16": "integer", "uint32": "integer", "uint64": "integer",
	"time.Time": "time", "time.Duration": "integer (nanoseconds)",
	"service.ID": "string",
	"netip.Addr": "address", "netip.AddrPort": "address and port", "netip.Prefix": "prefix",
}

// kind describes a type, and plans a section for the structs in it.
func (p *statusPage) kind(path, dir string, file *ast.File, of ast.Expr) string {
	switch e := of.(type) {
	case *ast.StarExpr:
		return p.kind(path, dir, file, e.X)
	case *ast.ArrayType:
		return "list of " + p.kind(path+"[]", dir, file, e.Elt)
	case *ast.MapType:
		return "map of " + p.kind(path+"[]", dir, file, e.Value)
	case *ast.SelectorExpr:
		name := e.X.(*ast.Ident).Name + "." + e.Sel.Name
		if k := basic[name]; k != "" {
			return k
		}
		return p.named(path, p.imported(file, e.X.(*ast.Ident).Name), e.Sel.Name)
	case *ast.Ident:
		if k := basic[e.Name]; k != "" {
			return k
		}
		return p.named(path, dir, e.Name)
	}
	p.t.Fatalf("%s: a type that this test does not know: %T", path, of)
	return ""
}

// named describes a type of ours.
func (p *statusPage) named(path, dir, name string) string {
	spec, file := p.typeSpec(dir, name)
	switch of := spec.Type.(type) {
	case *ast.StructType:
		title, known := p.sections[dir+"."+name]
		if !known {
			title = path
			p.sections[dir+"."+name] = title
			p.next = append(p.next, struct{ title, dir, name string }{title, dir, name})
		}
		return fmt.Sprintf("[`%s`](#%s)", title, strings.ToLower(strings.NewReplacer(".", "", "[]", "").Replace(title)))
	case *ast.ArrayType:
		return p.kind(path, dir, file, of)
	}
	if p.listInJSON(dir, name) {
		return "list of string"
	}
	values := p.values(dir, name)
	if dir != root {
		values = append(values, p.values(root, filepath.Base(dir)+"."+name)...)
	}
	if len(values) > 0 {
		return strings.Join(values, ", ")
	}
	return "string"
}

// listInJSON reports whether a string type has its own JSON form, which is a list.
func (p *statusPage) listInJSON(dir, name string) bool {
	for _, file := range p.parsed(dir) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv != nil && f.Name.Name == "MarshalJSON" && types.ExprString(f.Recv.List[0].Type) == name {
				return true
			}
		}
	}
	return false
}

// values returns the constants of a type that are strings.
func (p *statusPage) values(dir, name string) (all []string) {
	for _, file := range p.parsed(dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || v.Type == nil || types.ExprString(v.Type) != name || len(v.Values) != 1 {
				return true
			}
			if text, ok := v.Values[0].(*ast.BasicLit); ok && text.Value != `""` {
				all = append(all, "`"+strings.Trim(text.Value, `"`)+"`")
			}
			return true
		})
	}
	return all
}

func (p *statusPage) typeSpec(dir, name string) (*ast.TypeSpec, *ast.File) {
	for _, file := range p.parsed(dir) {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					if spec, ok := s.(*ast.TypeSpec); ok && spec.Name.Name == name {
						return spec, file
					}
				}
			}
		}
	}
	p.t.Fatalf("%s has no type %s", dir, name)
	return nil, nil
}

// imported returns the folder of a package that a file imports.
func (p *statusPage) imported(file *ast.File, name string) string {
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if dir, ours := strings.CutPrefix(path, module); ours && filepath.Base(dir) == name {
			return dir
		}
	}
	p.t.Fatalf("%s imports no package %s of ours", file.Name.Name, name)
	return ""
}

func (p *statusPage) parsed(dir string) []*ast.File {
	if p.files[dir] == nil {
		paths, _ := filepath.Glob(filepath.Join(repository, dir, "*.go"))
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fileset, path, nil, parser.ParseComments)
			if err != nil {
				p.t.Fatal(err)
			}
			p.files[dir] = append(p.files[dir], file)
		}
	}
	return p.files[dir]
}
