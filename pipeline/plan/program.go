package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Edge joins two stages: activations flow From → To, cotangents back.
type Edge struct{ From, To int }

// Program is the order of actions of every rank of one pipeline for one step. It is a value: build, print,
// check, run or simulate it.
type Program struct {
	Rows      [][]Entry // by pipeline rank
	StageRank []int     // the rank that owns each stage
	Edges     []Edge    // nil is the chain 0 → 1 → …
	Micro     int       // microbatches a step
	Chunks    []int     // chunks of each microbatch; nil is one each
	// Homes are the groups of rows that run a stage, where that is not the one row of StageRank: microbatch
	// m runs on all rows of group m modulo their number. Rows are then ranks, and those of one group take
	// the stage's actions in one order.
	Homes  [][][]int
	NoBack []bool // stages without a backward, nil for none: frozen, and nothing before them learns
}

// NumChunks is the chunks of microbatch m.
func (p *Program) NumChunks(m int) int {
	if p.Chunks == nil {
		return 1
	}
	return p.Chunks[m]
}

// Before lists the stages whose activations stage s takes.
func (p *Program) Before(s int) (out []int) {
	if p.Edges == nil {
		if s > 0 {
			out = append(out, s-1)
		}
		return
	}
	for _, e := range p.Edges {
		if e.To == s {
			out = append(out, e.From)
		}
	}
	return
}

// After lists the stages that take stage s's activations.
func (p *Program) After(s int) (out []int) {
	if p.Edges == nil {
		if s+1 < len(p.StageRank) {
			out = append(out, s+1)
		}
		return
	}
	for _, e := range p.Edges {
		if e.From == s {
			out = append(out, e.To)
		}
	}
	return
}

// String prints one row a rank, actions separated by commas: PyTorch's CSV.
func (p *Program) String() string {
	var b strings.Builder
	for _, row := range p.Rows {
		for i, e := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(e.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Hash identifies the program; all ranks agree on it before anything runs.
func (p *Program) Hash() string {
	h := sha256.Sum256([]byte(fmt.Sprint(p.StageRank, p.Edges, p.Micro, p.Chunks, p.Homes, p.NoBack, "\n", p.String())))
	return hex.EncodeToString(h[:])
}

// Owns reports whether stage s runs on a row, for some microbatch at least.
func (p *Program) Owns(s, row int) bool {
	if p.Homes == nil || p.Homes[s] == nil {
		return p.StageRank[s] == row
	}
	for _, g := range p.Homes[s] {
		for _, r := range g {
			if r == row {
				return true
			}
		}
	}
	return false
}

// Home is the rows that run stage s for microbatch m, together.
func (p *Program) Home(s, m int) []int {
	if p.Homes == nil || p.Homes[s] == nil {
		return []int{p.StageRank[s]}
	}
	return p.Homes[s][m%len(p.Homes[s])]
}
