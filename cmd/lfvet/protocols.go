package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
)

// protocolDirs hold behaviours and what runs them in virtual time: they see the world through actors.Context
// and nothing else.
var protocolDirs = []string{"actors/core", "sim", "sim/heads", "actors/cluster/head/decide",
	"actors/cluster/agent/decide", "actors/pool", "actors/rounds", "sim/rollouts", "actors/serve/queue", "sim/serving"}

// timedDirs are those of protocolDirs that know dates and durations as values, which come in from outside.
var timedDirs = []string{"sim/heads", "actors/pool", "actors/cluster/head/decide", "actors/cluster/agent/decide"}

// clockNames are what package time has of the world: clocks, timers and the place of the machine.
var clockNames = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
	"Timer", "Ticker", "Local"}

// protocolBans are standard packages that bring in time, chance, I/O or threads.
var protocolBans = []string{"time", "net", "os", "sync", "syscall", "log", "io/ioutil", "io/fs", "runtime", "testing"}

// randAllowed are the names of math/rand that do not draw from the process-wide source.
var randAllowed = []string{"Rand", "New", "NewSource", "NewPCG", "NewChaCha8", "PCG", "ChaCha8", "Source",
	"Source64", "Zipf", "NewZipf"}

// checkProtocols holds the files of protocolDirs, tests apart, to determinism: no banned package, no global
// chance, no goroutine, channel or select, and no range over a map unless its line says
// "//lfvet:order reason", the reason being why the order cannot show.
func checkProtocols(m *module, r *report) {
	var typed *typeChecker
	for _, f := range m.files {
		if f.test || f.ignored || !slices.Contains(protocolDirs, f.dir) {
			continue
		}
		if typed == nil {
			typed = newTypeChecker(m)
		}
		checkProtocolImports(f, r)
		p := &protocolFile{f: f, r: r, info: typed.check(f.dir), excused: directives(r, f, "order"), rand: randName(f)}
		ast.Inspect(f.ast, p.visit)
	}
}

func checkProtocolImports(f *source, r *report) {
	for _, spec := range f.ast.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value) // the parser let it through
		if imp == "time" && slices.Contains(timedDirs, f.dir) {
			continue // clockNames are not for it
		}
		if underAny(imp, protocolBans) {
			r.add(f, spec.Pos(), "protocol", "imports %s: behaviours see the world only through actors.Context", imp)
		}
	}
}

// randName is the name under which f knows math/rand or math/rand/v2; "" if it does not.
func randName(f *source) string {
	for _, spec := range f.ast.Imports {
		// the parser let it through above: the parser let it through
		if imp, _ := strconv.Unquote(spec.Path.Value); imp != "math/rand" && imp != "math/rand/v2" {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return "rand"
	}
	return ""
}

type protocolFile struct {
	f       *source
	r       *report
	info    *types.Info
	excused map[int]bool
	rand    string
}

func (p *protocolFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		p.ban(n, "go statement: spawn an actor")
	case *ast.SelectStmt:
		p.ban(n, "select statement: receive messages")
	case *ast.SendStmt:
		p.ban(n, "channel send: send a message")
	case *ast.ChanType:
		p.ban(n, "channel type: behaviours exchange messages")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			p.ban(n, "channel receive: receive messages")
		}
	case *ast.SelectorExpr:
		if p.rand != "" && isIdent(n.X, p.rand) && !slices.Contains(randAllowed, n.Sel.Name) {
			p.ban(n, "rand."+n.Sel.Name+" draws from the process-wide source: use the Context's")
		}
		if isIdent(n.X, "time") && slices.Contains(timedDirs, p.f.dir) && slices.Contains(clockNames, n.Sel.Name) {
			p.ban(n, "time."+n.Sel.Name+" is the machine's: times come in from outside")
		}
	case *ast.RangeStmt:
		p.rangeOver(n)
	}
	return true
}

func (p *protocolFile) ban(n ast.Node, text string) { p.r.add(p.f, n.Pos(), "protocol", "%s", text) }

// rangeOver reports a loop whose order the language leaves open.
func (p *protocolFile) rangeOver(n *ast.RangeStmt) {
	if p.excused[p.r.fset.Position(n.Pos()).Line] {
		return
	}
	if call, ok := n.X.(*ast.CallExpr); ok {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && isIdent(sel.X, "maps") {
			p.ban(n, "range over maps."+sel.Sel.Name+": its order can show; sort, or say //lfvet:order reason")
			return
		}
	}
	t := p.info.TypeOf(n.X)
	if t == nil {
		return
	}
	if _, ok := t.Underlying().(*types.Map); ok {
		p.ban(n, "range over a map: its order can show; sort the keys, or say //lfvet:order reason")
	}
}
