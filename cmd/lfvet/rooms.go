package main

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// Limits on what one reader keeps in mind: files of a folder, fields of a type, parameters of a function. An exception
// carries its reason: "//lfvet:files reason" in a file of the folder, "//lfvet:fields reason" and
// "//lfvet:params reason" right above the type or the function.
const (
	folderFilesMax = 40
	typeFieldsMax  = 40
	funcParamsMax  = 7
)

// manyParams is the folder whose functions may have more parameters: kernels take shapes and strides by registers.
const manyParams = "kernels/cpu"

// checkRooms reports folders with too many files that are neither tests nor generated.
func checkRooms(m *module, r *report) {
	first, count, excused := map[string]*source{}, map[string]int{}, map[string]bool{}
	for _, f := range m.files {
		if len(directives(r, f, "files")) > 0 {
			excused[f.dir] = true
		}
		if f.test || f.generated || f.ignored {
			continue
		}
		if first[f.dir] == nil {
			first[f.dir] = f
		}
		count[f.dir]++
	}
	for dir, n := range count {
		if n > folderFilesMax && !excused[dir] {
			r.at(first[dir].path, 1, "files", "%s has %d files beside tests, limit %d: part of them is a package of its own",
				dir, n, folderFilesMax)
		}
	}
}

// checkBreadth reports types with too many fields and functions with too many parameters. Tests and generated
// files are exempt.
func checkBreadth(f *source, r *report) {
	if f.test || f.generated {
		return
	}
	fields, params := directives(r, f, "fields"), directives(r, f, "params")
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			line := r.fset.Position(d.Type.Func).Line
			if n := d.Type.Params.NumFields(); n > funcParamsMax && !params[line-1] && f.dir != manyParams {
				r.add(f, d.Type.Func, "params", "%s has %d parameters, limit %d: those that travel together are a struct",
					d.Name.Name, n, funcParamsMax)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				st, ok := t.Type.(*ast.StructType)
				line := r.fset.Position(t.Name.Pos()).Line
				if ok && st.Fields.NumFields() > typeFieldsMax && !fields[line-1] {
					r.add(f, t.Name.Pos(), "fields", "%s has %d fields, limit %d: those of one matter are a type of their own",
						t.Name.Name, st.Fields.NumFields(), typeFieldsMax)
				}
			}
		}
	}
}

// kindRooms are the folders that may ask of which kind a model or a sample is: what families are made of,
// and the rooms of tasks.
var kindRooms = []string{"stages/family", "stages/diffusion", "stages/policies", "stages/latent"}

// kindForms are the forms in which a kind is asked for: by a part of a model that is nil, or by a kind of samples.
var kindForms = regexp.MustCompile(`\bDenoiser [!=]= nil|\bDenoises\(\)|\bActs\(\w*\)|\.(Sight|Takes|Clip) [!=]= nil|` +
	`\.(Hosted|Canvas)\b|\bdataset\.Kind[A-Z]\w*`)

// kindStated is how a format or a source states the kind of its samples, and how a table says what is done with
// each, which are no questions.
var kindStated = regexp.MustCompile(`\b[kK]ind:\s*dataset\.Kind[A-Z]\w*|\bKind\(\) dataset\.Kind\s*\{ return dataset\.Kind[A-Z]\w* \}|` +
	`^\s*dataset\.Kind[A-Z]\w*:\s`)

// kindQuestion is a line that asks for a kind, with the reason that stands above or beside it.
type kindQuestion struct {
	path   string
	line   int
	text   string
	reason string
}

// listKinds finds the lines outside of kindRooms, tests apart, that ask for a kind. text gives a file's content.
func listKinds(m *module, text func(path string) (string, error)) (out []kindQuestion, err error) {
	for _, f := range m.files {
		if f.test || f.generated || f.ignored || underAny(f.dir, kindRooms) || f.dir == "cmd/lfvet" {
			continue
		}
		content, err := text(f.path)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(content, "\n")
		for i, line := range lines {
			code, beside, _ := strings.Cut(line, "//")
			if !kindForms.MatchString(kindStated.ReplaceAllString(code, "")) {
				continue
			}
			q := kindQuestion{path: f.path, line: i + 1, text: strings.TrimSpace(code)}
			above := ""
			if i > 0 {
				above = strings.TrimPrefix(strings.TrimSpace(lines[i-1]), "//")
			}
			for _, c := range []string{beside, above} {
				if reason, ok := strings.CutPrefix(c, "lfvet:kind "); ok {
					q.reason = strings.TrimSpace(reason)
				}
			}
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b kindQuestion) int { return strings.Compare(a.path, b.path) })
	return out, nil
}
