package words

import "slices"

// span is words that are the cut of a rule.
type span struct{ from, to int }

// join puts words together again that affixes have cut though they are a rule as a whole, as ":)" behind a
// word. Of matches that overlap the longest counts, then the first; one with a blank in it stays as it is.
func (c *Cutter) join(text string) {
	var found []span
	for i := range c.ends {
		if c.e.starts[text[c.from[i]]] {
			found = c.matches(text, i, found)
		}
	}
	if found == nil {
		return
	}
	slices.SortFunc(found, func(a, b span) int {
		if d := (b.to - b.from) - (a.to - a.from); d != 0 {
			return d
		}
		return a.from - b.from
	})
	taken := map[int]bool{}
	var use []span
	for _, s := range found {
		if !taken[s.from] && !taken[s.to-1] {
			use = append(use, s)
		}
		for k := s.from; k < s.to; k++ {
			taken[k] = true
		}
	}
	slices.SortFunc(use, func(a, b span) int { return b.from - a.from })
	for _, s := range use { // from the back, so that numbers in front stay
		from := c.from[s.from]
		lengths, ok := c.e.rule(text[from:c.ends[s.to-1]])
		if !ok {
			continue
		}
		var starts, ends []int32
		for _, n := range lengths {
			starts = append(starts, from)
			from += n
			ends = append(ends, from)
		}
		c.from = slices.Replace(c.from, s.from, s.to, starts...)
		c.ends = slices.Replace(c.ends, s.from, s.to, ends...)
	}
}

// matches appends the rules whose words begin with word i.
func (c *Cutter) matches(text string, i int, found []span) []span {
	word := text[c.from[i]:c.ends[i]]
	if len(word) > c.e.ruleMax {
		return found
	}
next:
	for _, a := range c.e.affixed[word] {
		if i+len(a.rest) >= len(c.ends) {
			continue
		}
		for k, w := range a.rest {
			if text[c.from[i+1+k]:c.ends[i+1+k]] != w {
				continue next
			}
		}
		found = append(found, span{i, i + 1 + len(a.rest)})
	}
	return found
}
