package sample

import (
	"crypto/sha256"
	"encoding/binary"
)

// PageRows is the tokens of a page.
const PageRows = 16

// pages are the pages of a pool: who uses them, and which hold what prompts begin with. A page that nobody uses keeps
// its rows until it is needed (arXiv:2309.06180).
// In the words of the field: KV cache, paged attention, prefix cache.
type pages struct {
	refs []int
	keys []string // of the tokens up to a full page's end; "" for a page that is not full
	at   map[string]int
	free []int // nobody's, the one to be used first at the end
}

func newPages(n int) *pages {
	p := &pages{refs: make([]int, n), keys: make([]string, n), at: map[string]int{}}
	for i := n - 1; i >= 0; i-- {
		p.free = append(p.free, i)
	}
	return p
}

// used is the number of pages that sequences hold.
func (p *pages) used() int { return len(p.refs) - len(p.free) }

// take gives a page without content, -1 if all are used.
func (p *pages) take() int {
	if len(p.free) == 0 {
		return -1
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.forget(i)
	p.refs[i] = 1
	return i
}

// forget drops what a page is known to hold.
func (p *pages) forget(i int) {
	if p.keys[i] != "" {
		delete(p.at, p.keys[i])
		p.keys[i] = ""
	}
}

// share takes the page that holds what a key stands for, -1 if there is none.
func (p *pages) share(key string) int {
	i, ok := p.at[key]
	if !ok {
		return -1
	}
	if p.refs[i] == 0 {
		for k, f := range p.free {
			if f == i {
				p.free = append(p.free[:k], p.free[k+1:]...)
				break
			}
		}
	}
	p.refs[i]++
	return i
}

// name says what a full page holds; the first page of a key stands for it.
func (p *pages) name(i int, key string) {
	if _, known := p.at[key]; !known && p.keys[i] == "" {
		p.at[key], p.keys[i] = i, key
	}
}

// give gives a page back; pages that hold nothing known are used first, and of the others those that were given
// back longest ago.
func (p *pages) give(i int) {
	if p.refs[i]--; p.refs[i] > 0 {
		return
	}
	if p.keys[i] == "" {
		p.free = append(p.free, i)
		return
	}
	p.free = append([]int{i}, p.free...)
}

// flush forgets what all pages hold: the weights that made it have changed.
func (p *pages) flush() {
	for i := range p.keys {
		p.forget(i)
	}
}

// chain is the key of a page behind the one of another key.
func chain(before string, tokens []int32) string {
	b := make([]byte, 0, len(before)+4*len(tokens))
	b = append(b, before...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}
