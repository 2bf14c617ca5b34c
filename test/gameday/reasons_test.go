package gameday

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every reason in the code has its row in docs/runbook.md, and every row its reason in the code.
func TestRunbookKnowsTheReasons(t *testing.T) {
	content, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(content), "\n## What a reason means")
	var rows []string
	for line := range strings.Lines(table) {
		if column := strings.Split(line, " | ")[0]; strings.HasPrefix(column, "| `") {
			for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(column, -1) {
				rows = append(rows, found[1])
			}
		}
	}
	reasons, literals := textsOf(t, "../../mirror", "../../mirror/replication", "../../mirror/cluster", "../../appendlog", "../../recordbatch")
	for text, where := range reasons {
		if !containsAny(text, rows) {
			t.Errorf("%s: docs/runbook.md has no row for the reason %q", where, text)
		}
	}
	for _, row := range rows {
		if !inAny(row, literals) {
			t.Errorf("the row %q of docs/runbook.md is no reason in the code", row)
		}
	}
	if len(reasons) < 10 {
		t.Errorf("only %d reasons were found in the code", len(reasons))
	}
}

// textsOf collects all string literals of packages, and those that are part of a reason: of a problem, and the texts of
// functions whose names say that they make one.
func textsOf(t *testing.T, dirs ...string) (reasons map[string]string, literals []string) {
	t.Helper()
	reasons = map[string]string{}
	files := token.NewFileSet()
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range texts(file) {
				literals = append(literals, text.value)
			}
			if dir == "../../recordbatch" || filepath.Base(path) == "groups.go" { // reasons of other things
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, text := range reasonTexts(n) {
					// Not what joins two parts, nor a part that goes on behind another.
					if len(text.value) > 10 && !strings.ContainsAny(text.value[:1], " ;") {
						reasons[text.value] = files.Position(text.pos).String()
					}
				}
				return true
			})
		}
	}
	return reasons, literals
}

type text struct {
	value string
	pos   token.Pos
}

// reasonTexts are the texts of a node that makes a reason: a problem, or a function like divergedReason or foreign.
func reasonTexts(n ast.Node) []text {
	switch n := n.(type) {
	case *ast.CallExpr:
		if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "problemf" {
			return texts(n)
		}
	case *ast.CompositeLit:
		if name, ok := n.Type.(*ast.Ident); ok && name.Name == "problem" {
			return texts(n)
		}
	case *ast.FuncDecl:
		if strings.HasSuffix(n.Name.Name, "Reason") || n.Name.Name == "foreign" || n.Name.Name == "Error" && n.Recv != nil {
			return texts(n)
		}
	}
	return nil
}

func texts(n ast.Node) []text {
	var found []text
	ast.Inspect(n, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text{value, literal.Pos()})
			}
		}
		return true
	})
	return found
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func inAny(part string, texts []string) bool {
	for _, text := range texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
