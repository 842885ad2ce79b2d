package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Edge joins two stages: activations flow From → To, cotangents back.
type Edge struct{ From, To int }

// Program is the order of actions of every rank of one pipeline for one step. It is a value: build, print, check, run or
// simulate it.
type Program struct {
	Rows      [][]Entry // by pipeline rank
	StageRank []int     // the rank that owns each stage
	Edges     []Edge    // nil is the chain 0 → 1 → …
	Micro     int       // microbatches a step
	Chunks    []int     // chunks of each microbatch; nil is one each
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
	h := sha256.Sum256([]byte(fmt.Sprint(p.StageRank, p.Edges, p.Micro, p.Chunks, "\n", p.String())))
	return hex.EncodeToString(h[:])
}
