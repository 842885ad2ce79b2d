//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// plan is an engine of the library for one shape, ready to run.
type plan struct {
	graph     graph // its descriptors live as long as the plan
	shape     attentionShape
	desc      uintptr
	engine    string // as Chosen keeps it
	workspace int
}

// inOrder is the knob (stages) with which an engine of the backward adds gradients of queries up in one
// order: what cudnn-frontend sets for a deterministic backward on Hopper.
const inOrder = " 14=4"

// mostEngines is how many proposals of the library are looked at.
const mostEngines = 16

// plan builds the program that runs a shape on a device: with the engine that was kept, or, if none was kept,
// with the first proposal of the library that gives the same bits each time. Without such an engine it returns nil.
func (l *Attentions) plan(s attentionShape, device func(g *graph) uintptr, kept string) (*plan, error) {
	p := &plan{graph: graph{lib: l}, shape: s}
	g := &p.graph
	dev := device(g)
	whole := g.whole(g.attention(s))
	if kept != "" {
		config := g.configOf(kept, whole, dev)
		return p.build(config, kept, dev, g.err)
	}
	var first error
	for _, mode := range []int32{modeBest, modeFallback} {
		for _, config := range g.proposals(mode, whole, dev) {
			engine, steady := g.engineOf(config)
			if s.backward && !s.loose { // sums over keys are atomic otherwise, whatever the notes say
				engine += inOrder
				config = g.configOf(engine, whole, dev)
			} else if !steady && !s.loose {
				continue
			}
			q, err := p.build(config, engine, dev, g.err)
			if err == nil {
				return q, nil
			}
			first, g.err = errors.Join(first, err), nil
		}
	}
	err := g.err
	g.close()
	var st *status
	if err == nil || errors.As(err, &st) && st.unsupported() {
		return nil, nil // proposals that cannot be built are the library's affair
	}
	return nil, err
}

// build makes the plan of an engine's configuration.
func (p *plan) build(config uintptr, engine string, dev uintptr, err error) (*plan, error) {
	g := &p.graph
	if g.err == nil && err == nil {
		d := g.new(dnnPlan)
		g.refer(d, planConfig, config)
		g.refer(d, planDevice, dev)
		p.desc = g.finish(d)
		var size int64
		g.read(p.desc, planWorkspace, typeInt64, 1, unsafe.Pointer(&size))
		p.workspace, p.engine = int(size), engine
	}
	return p, errors.Join(err, g.err)
}

// proposals asks the library for configurations of engines, the best first.
func (g *graph) proposals(mode int32, whole, dev uintptr) []uintptr {
	if g.err != nil {
		return nil
	}
	h := g.new(dnnHeuristic)
	g.refer(h, heuristicGraph, whole)
	g.enum(h, heuristicMode, typeHeuristic, mode)
	g.refer(h, heuristicDevice, dev)
	g.finish(h)
	list := make([]uintptr, mostEngines)
	for i := range list {
		list[i] = g.new(dnnEngineConfig)
	}
	n := g.read(h, heuristicResults, typeDescriptor, len(list), unsafe.Pointer(&list[0]))
	var st *status
	if errors.As(g.err, &st) && st.unsupported() {
		g.err = nil
	}
	return list[:min(int(n), len(list))]
}

// engineOf writes a configuration down as its engine's number and its knobs, and tells whether the engine
// gives the same bits each time.
func (g *graph) engineOf(config uintptr) (text string, steady bool) {
	engine := g.new(dnnEngine)
	g.read(config, configEngine, typeDescriptor, 1, unsafe.Pointer(&engine))
	var index int64
	g.read(engine, engineIndex, typeInt64, 1, unsafe.Pointer(&index))
	var notes [32]int32
	n := g.read(engine, engineNotes, typeNote, len(notes), unsafe.Pointer(&notes[0]))
	steady = true
	for _, note := range notes[:min(int(n), len(notes))] {
		steady = steady && note != noteNotTheSame
	}
	text = strconv.FormatInt(index, 10)
	knobs := make([]uintptr, 64)
	for i := range knobs {
		knobs[i] = g.new(dnnKnobChoice)
	}
	have := g.read(config, configKnobs, typeDescriptor, len(knobs), unsafe.Pointer(&knobs[0]))
	for _, k := range knobs[:min(int(have), len(knobs))] {
		var which int32
		var value int64
		g.read(k, knobType, typeKnob, 1, unsafe.Pointer(&which))
		g.read(k, knobValue, typeInt64, 1, unsafe.Pointer(&value))
		text += fmt.Sprintf(" %d=%d", which, value)
	}
	return text, steady
}

// configOf is the configuration that engineOf has written down.
func (g *graph) configOf(text string, whole, dev uintptr) uintptr {
	index, rest, _ := strings.Cut(text, " ") // an engine may have no settings
	n, err := strconv.ParseInt(index, 10, 64)
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("%q is not an engine of cuDNN", text)
	}
	engine := g.new(dnnEngine)
	g.refer(engine, engineGraph, whole)
	g.ints(engine, engineIndex, n)
	g.refer(engine, engineDevice, dev)
	g.finish(engine)
	var knobs []uintptr
	for _, k := range strings.Fields(rest) {
		var which int32
		var value int64
		if _, err := fmt.Sscanf(k, "%d=%d", &which, &value); err != nil && g.err == nil {
			g.err = fmt.Errorf("%q is not an engine of cuDNN", text)
		}
		d := g.new(dnnKnobChoice)
		g.enum(d, knobType, typeKnob, which)
		g.ints(d, knobValue, value)
		knobs = append(knobs, g.finish(d))
	}
	config := g.new(dnnEngineConfig)
	g.refer(config, configEngine, engine)
	if len(knobs) > 0 {
		g.refer(config, configKnobs, knobs...)
	}
	return g.finish(config)
}
