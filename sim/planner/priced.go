package planner

import (
	"context"
	"errors"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/search"
)

// allVariants is the usual Search.Variants.
const allVariants = 1500

// priced estimates plans by closed forms.
func (p *Search) priced(ctx context.Context, all []search.Candidate) error {
	if p.Space.Tower != nil || len(p.Space.Variants(all)) <= p.Variants {
		return p.exact(ctx, all)
	}
	if err := p.prices.ahead(ctx, p.Space.Bases(all), p.Profile, p.see); err != nil {
		return err
	}
	if err := p.Space.Bounds(all); err != nil {
		return err
	}
	return p.Space.Price(all, Reranked, func(some []search.Candidate) error { return p.exact(ctx, some) })
}

// exact estimates plans from their own variants, with and without exchanges that travel behind other work.
func (p *Search) exact(ctx context.Context, all []search.Candidate) error {
	variants := p.Space.Variants(all)
	variants = append(variants, p.Space.Variants(p.Space.Overlapped(all))...)
	if err := p.prices.ahead(ctx, variants, p.Profile, p.see); err != nil {
		return err
	}
	for i := range all {
		all[i].Why = ""
		if err := p.Space.Estimate(&all[i]); err != nil {
			return err
		}
		if p.Machine.Second == nil { // where there are two kinds, stages are cut by their rates
			if err := p.Space.Recut(&all[i]); err != nil {
				return err
			}
		}
		if err := p.Space.WithOverlap(&all[i]); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return exit.With(errors.New("interrupted"), exit.Interrupted)
		}
	}
	return nil
}
