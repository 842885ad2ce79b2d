package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset/store"
)

var _ = registerOrigin(OriginKind{"queue",
	"tickets in a folder, each a JSON file that names a shard: a ticket goes when its shard is in the ledger",
	func(c FollowConfig) (origin, error) {
		if c.Marker != "" {
			return nil, errors.New("a marker is of files; what a ticket names is whole")
		}
		if store.Scheme(c.Pattern) != "" {
			return nil, fmt.Errorf("%s: tickets are taken out of a folder on disk; of a store follow files, or a list",
				store.Redact(c.Pattern))
		}
		return &queue{pattern: c.Pattern, tickets: map[string][]string{}}, nil
	}})

// queue is a folder of tickets. A producer writes one beside the folder and moves it in, so that it is there as a
// whole; several may name one shard.
type queue struct {
	pattern string
	tickets map[string][]string // by the shard that they name
}

// Endings of tickets that were refused, and how large one may be.
const (
	refusedTicket = ".refused"
	ticketMax     = 1 << 16
)

func (q *queue) offers(taken func(string) bool, room int64) (out []offer, err error) {
	files, err := filepath.Glob(q.pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.pattern, err)
	}
	slices.Sort(files)
	clear(q.tickets)
	for _, path := range files {
		if filepath.Ext(path) == refusedTicket {
			continue
		}
		n, err := readTicket(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil { // it may be half written, and is looked at again
			out = append(out, offer{name: path, waits: err.Error(), ticket: true})
			continue
		}
		first := q.tickets[n.id] == nil
		q.tickets[n.id] = append(q.tickets[n.id], path)
		switch {
		case !first:
		case taken(n.id): // it may be another shard of that name
			out = append(out, n.offer())
		default:
			out = append(out, n.asked(&room))
		}
	}
	return out, nil
}

// readTicket reads a ticket.
func readTicket(path string) (named, error) {
	b, err := readWhole(path, ticketMax)
	if err != nil {
		return named{}, err
	}
	return parseNamed(b, path, "ticket "+path)
}

// done removes the tickets of shards that are in the ledger.
func (q *queue) done(inLedger func(string) bool) (err error) {
	for _, n := range sortedKeys(q.tickets) {
		if !inLedger(n) {
			continue
		}
		for _, t := range q.tickets[n] {
			if e := os.Remove(t); !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
		delete(q.tickets, n)
	}
	return err
}

// refused sets the tickets of a shard aside.
func (q *queue) refused(name string) (err error) {
	for _, t := range q.tickets[name] {
		if e := os.Rename(t, t+refusedTicket); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	delete(q.tickets, name)
	return err
}
