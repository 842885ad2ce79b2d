package dashboard

import (
	"cmp"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
)

// edgesMax bounds the edges that are sent to the page at a time: those that most went over, and all that
// hold something back or that somebody waits for at the root's chain.
const edgesMax = 400

// node is an actor in the picture.
type node struct {
	Name   string  `json:"name"`  // rank3
	Where  string  `json:"where"` // pp 1 dp 0, where the run's mesh says so
	State  string  `json:"state"` // busy, wait, idle or stuck
	What   string  `json:"what,omitempty"`
	For    int     `json:"for"` // the node that it waits for, -1 for none
	Age    float64 `json:"age"` // seconds
	Memory int64   `json:"memory,omitempty"`
	Budget int64   `json:"budget,omitempty"` // of Memory, 0 for none
}

// arrow is an edge in the picture.
type arrow struct {
	From     int      `json:"from"`
	To       int      `json:"to"`
	Messages int64    `json:"messages"` // so far
	Bytes    int64    `json:"bytes"`    // so far
	Kinds    []string `json:"kinds,omitempty"`
	Way      string   `json:"way"`
	Held     int      `json:"held,omitempty"`    // messages that wait for credit
	Credits  int      `json:"credits,omitempty"` // of the edge, all spent, where messages are held
}

// link is a step of the chain from the coordinator to what the run waits for.
type link struct {
	Node int    `json:"node"`
	Text string `json:"text"`
}

// graph is a run's actors at a moment.
type graph struct {
	Running bool          `json:"running"`
	Nodes   []node        `json:"nodes"`
	Edges   []arrow       `json:"edges"`
	All     int           `json:"all"` // edges that there are
	Root    string        `json:"root"`
	Kind    string        `json:"kind"` // of the root, as lfactor why has it
	Chain   []link        `json:"chain"`
	Silent  []host.Silent `json:"silent"`
}

// graphOf turns what actors say into a picture.
func graphOf(all []host.Status, silent []host.Silent, running bool) graph {
	g := graph{Running: running, Nodes: []node{}, Edges: []arrow{}, Chain: []link{}, Silent: silent}
	if !running {
		return g
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b host.Status) int { return cmp.Compare(a.Ref, b.Ref) })
	at, named := map[actors.Ref]int{}, map[string]int{}
	for i, s := range all {
		at[s.Ref] = i
		named[record.ShortName(s.Name)] = i
	}
	for _, s := range all {
		g.Nodes = append(g.Nodes, nodeOf(s, at))
	}
	d := host.Diagnose(all, silent...)
	g.Root, g.Kind = d.Root, d.Kind
	if first, ok := at[layout.CoordinatorRef]; ok && d.Kind == "cycle" {
		fleeting(&g, first)
	}
	chain := map[[2]int]bool{}
	seen := map[int]bool{}
	for i, ok := at[layout.CoordinatorRef]; ok && !seen[i] && len(g.Chain) < len(d.Chain); {
		seen[i] = true
		g.Chain = append(g.Chain, link{i, d.Chain[len(g.Chain)]})
		if g.Nodes[i].For < 0 {
			break
		}
		chain[[2]int{g.Nodes[i].For, i}] = true
		i = g.Nodes[i].For
	}
	g.arrows(all, named, chain)
	return g
}

// holds is how long waits must last for a cycle of them to be one: actors are asked one after the other,
// and messages go on meanwhile.
const holds = time.Second

// fleeting says of a cycle, in which a wait is younger than that, that it may be none. Waits of actors outside it
// say nothing of it.
func fleeting(g *graph, first int) {
	seen, i := map[int]bool{}, first
	for i >= 0 && !seen[i] { // to the cycle
		seen[i] = true
		i = g.Nodes[i].For
	}
	for start := i; i >= 0; { // once around
		if g.Nodes[i].Age < holds.Seconds() {
			g.Kind = "none"
			g.Root = "messages were under way at this look: of the actors that wait for each other, one has for less than a second"
			return
		}
		if i = g.Nodes[i].For; i == start {
			return
		}
	}
}

func nodeOf(s host.Status, at map[actors.Ref]int) node {
	n := node{
		Name:   record.ShortName(s.Name),
		State:  "idle",
		What:   s.Wait.What,
		For:    -1,
		Age:    s.Age.Seconds(),
		Memory: s.Memory,
		Budget: s.Budget,
	}
	if len(s.Name) > 0 && s.Name[len(s.Name)-1] == ')' {
		for i := range s.Name {
			if s.Name[i] == '(' {
				n.Where = s.Name[i+1 : len(s.Name)-1]
				break
			}
		}
	}
	i, known := at[s.Wait.For]
	switch {
	case s.Stuck:
		n.State = "stuck"
	case s.Wait.Busy:
		n.State = "busy"
	case s.Wait.For != actors.None || s.Wait.What != "" && s.Ref >= rollout.FirstMember:
		n.State = "wait"
	}
	if known && s.Wait.For != actors.None {
		n.For = i
	}
	return n
}

// arrows keeps the edges that matter most.
func (g *graph) arrows(all []host.Status, named map[string]int, chain map[[2]int]bool) {
	for i, s := range all {
		mine := len(g.Edges)
		for _, e := range s.Sent {
			to, known := named[e.To]
			if !known {
				continue
			}
			g.Edges = append(g.Edges,
				arrow{From: i, To: to, Messages: e.Messages, Bytes: e.Bytes, Kinds: e.Kinds, Way: e.Way})
		}
		for _, h := range s.Wait.Held {
			for k := mine; k < len(g.Edges); k++ {
				if e := &g.Edges[k]; all[e.To].Ref == h.To {
					e.Held, e.Credits = e.Held+h.Count, h.Credits
				}
			}
		}
	}
	g.All = len(g.Edges)
	if g.All <= edgesMax {
		return
	}
	matters := func(e arrow) int {
		if e.Held > 0 || chain[[2]int{e.From, e.To}] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(g.Edges, func(a, b arrow) int {
		return cmp.Or(matters(b)-matters(a), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Messages, a.Messages))
	})
	g.Edges = g.Edges[:edgesMax]
	for i := range g.Edges {
		g.Edges[i].Kinds = nil
	}
}
