package planner

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/search"
)

// prices keeps what the blocks of the model cost, for each variant of a plan that was asked for.
type prices struct {
	mu    sync.Mutex
	known map[search.Variant]price
	cuts  map[[2]int][]int // of the model, by the number of stages and the length of sequences
}

// price is what pricing a variant gave, kept so that equal variants are recorded once.
type price struct {
	blocks []search.BlockCost
	err    error
}

type pricer func(search.Variant) ([]search.BlockCost, error)

// of is a pricer that works out each variant once.
func (p *prices) of(f pricer) pricer {
	return func(v search.Variant) ([]search.BlockCost, error) {
		p.mu.Lock()
		x, ok := p.known[v]
		p.mu.Unlock()
		if !ok {
			x.blocks, x.err = f(v)
			p.mu.Lock()
			p.known[v] = x
			p.mu.Unlock()
		}
		return x.blocks, x.err
	}
}

// ahead prices all variants on all cores. They do not depend on each other, so that nothing depends on the
// order in which they are done. What cannot be priced says so when it is asked for.
func (p *prices) ahead(ctx context.Context, all []search.Variant, f pricer,
	see func(what string, done, all int)) error {
	var group sync.WaitGroup
	work, done, known := make(chan search.Variant), 0, p.of(f)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for v := range work {
				_, _ = known(v) // it is kept for who asks, fault and all
			}
		})
	}
	for _, v := range all {
		if ctx.Err() != nil {
			break
		}
		work <- v
		done++
		see("variants of plans priced", done, len(all))
	}
	close(work)
	group.Wait()
	if ctx.Err() != nil {
		return exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	return nil
}

// see tells how far the search has come, if somebody looks.
func (p *Search) see(what string, done, all int) {
	if p.See != nil {
		p.See(what, done, all)
	}
}

// cut is how training cuts the model's blocks into stages where a run file does not say.
func (p *Search) cut(stages int) ([]int, error) {
	key, known := [2]int{stages, p.cfg.Run.Data.SeqLen}, p.prices
	known.mu.Lock()
	defer known.mu.Unlock()
	if cuts, ok := known.cuts[key]; ok {
		return slices.Clone(cuts), nil
	}
	cuts, err := p.base.Model.Balanced(key[0], key[1])
	if err == nil {
		known.cuts[key] = slices.Clone(cuts)
	}
	return cuts, err
}
