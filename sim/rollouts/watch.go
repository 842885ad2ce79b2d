package rollouts

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/rounds"
)

// watch holds a simulation to the promises of package rounds, by what it sees itself.
type watch struct {
	w     *world
	parts map[groupOf][]rounds.Part
	begun map[int64]bool // rounds that are begun and not trained on
	next  int64          // the round that is to be trained next
}

// groupOf is a prompt of a round.
type groupOf struct {
	round int64
	group int
}

// loads looks at a publication that a sampler takes.
func (c *watch) loads(publication int64) error {
	if k := c.w.Schedule.Staleness; c.next-publication > k+1 {
		return fmt.Errorf("R-4: publication %d is asked for, and round %d is to be trained", publication, c.next)
	}
	return nil
}

// drawn takes a part that counts.
func (c *watch) drawn(t rounds.Task) error {
	if c.parts == nil {
		c.parts, c.begun = map[groupOf][]rounds.Part{}, map[int64]bool{}
	}
	g := groupOf{t.Round, t.Group}
	have := c.parts[g]
	at := int64(0)
	if len(have) > 0 {
		at = have[len(have)-1].To
	}
	if t.From != at || len(have) > 0 && at == 0 {
		return fmt.Errorf("R-3: %+v comes behind %+v", t, have)
	}
	c.parts[g] = append(have, t.Part)
	if c.begun[t.Round] = true; int64(len(c.begun)) > c.w.Schedule.Staleness+1 {
		return fmt.Errorf("R-4: %d rounds are begun and not trained on", len(c.begun))
	}
	if t.To == 0 {
		for i := range c.w.Each {
			c.w.out.Drawn = append(c.w.out.Drawn, c.w.length(t.Round, t.Group, i))
		}
	}
	return nil
}

// trained looks at a round that is trained on.
func (c *watch) trained(round int64) error {
	if round != c.next {
		return fmt.Errorf("R-2: round %d is trained on, and round %d is the next", round, c.next)
	}
	c.next++
	for g := range c.w.Groups {
		parts := c.parts[groupOf{round, g}]
		if len(parts) == 0 || parts[len(parts)-1].To != 0 {
			return fmt.Errorf("R-2: group %d of round %d is trained on, and drawn are %+v", g, round, parts)
		}
		for _, p := range parts {
			c.w.out.Age = max(c.w.out.Age, round-p.Publication)
			if age := round - p.Publication; age < 0 || age > c.w.Schedule.Staleness {
				return fmt.Errorf("R-1: tokens of group %d of round %d have the age %d, and %d is allowed", g,
					round, age, c.w.Schedule.Staleness)
			}
		}
		for i := range c.w.Each {
			c.w.out.Trained = append(c.w.out.Trained, c.w.length(round, g, i))
		}
		delete(c.parts, groupOf{round, g})
	}
	delete(c.begun, round)
	return nil
}
