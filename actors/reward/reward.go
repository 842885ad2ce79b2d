// Package reward says what drawn answers are worth. A kind of reward is one file that registers itself.
package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset/token"
)

// Answer is what a reward sees: the texts, and the record of the data with the columns of its prompt.
type Answer struct {
	Prompt, Text string
	Record       map[string]json.RawMessage
	// Tokens are prompt and answer as they were drawn, and Tokenizer has their texts, nil where that is not known.
	Tokens    []int32
	Tokenizer *token.Tokenizer
	// Earned is what an environment gave for all turns, nil where there is none.
	Earned *float64
	// Suspect is set by a reward that has seen the answer do what only those do that mean to deceive it.
	Suspect bool
}

// Column is a text or a number of the record as text.
func (a *Answer) Column(name string) (string, error) {
	raw, ok := within(a.Record, name)
	if !ok && name == "answer" { // rows of verl have it there
		raw, ok = within(a.Record, "reward_model.ground_truth")
	}
	if !ok {
		return "", fmt.Errorf("the record has no column %q, which reward.column names", name)
	}
	var text string
	switch {
	case string(raw) == "null":
		return "", fmt.Errorf("column %s of the record is null", name)
	case json.Unmarshal(raw, &text) == nil:
		return text, nil
	}
	return string(raw), nil
}

// within is a column of a record, or a key of a mapping in one, as reward_model.ground_truth.
func within(record map[string]json.RawMessage, name string) (json.RawMessage, bool) {
	if raw, ok := record[name]; ok {
		return raw, true
	}
	head, rest, ok := strings.Cut(name, ".")
	var inner map[string]json.RawMessage
	if !ok || json.Unmarshal(record[head], &inner) != nil {
		return nil, false
	}
	return within(inner, rest)
}

// Func gives an answer's reward. It is called by several goroutines at once, and ends when its context does.
type Func func(ctx context.Context, a *Answer) (float64, error)

// Kind is a kind of reward.
type Kind struct {
	Name, Doc string
	Reads     []string // keys below reward that it reads beside kind, timeout and parallel
	New       func(c *configs.Reward) (Func, error)
	// Try says why a reward cannot be asked at all, before a run draws answers, and what the user is to do
	// about it; nil where there is nothing to try. It is the fault of the first key of Reads.
	Try func(ctx context.Context, c *configs.Config) error
	Aid string
	// Gold says why a text of reward.column is nothing that answers can be judged by, nil where any text is.
	Gold func(text string) error
	// Here says that the reward is computed by the run, which other work slows down: it has the time that it
	// takes, and answers are judged one after another, or by as many processes as reward.judges says.
	Here bool
}

var all = map[string]Kind{}

// Register enters a kind of reward, by its name in reward.kind. A Go program that trains adds its own so.
func Register(k Kind) struct{} {
	if _, known := all[k.Name]; known {
		panic("reward: two kinds are named " + k.Name)
	}
	all[k.Name] = k
	source.Offer(source.Rewards, k.Name)
	return struct{}{}
}

func init() { configs.Hold(configs.Rule{Name: "reward", Check: check}) }

// check holds the section reward to its kind.
func check(c *configs.Config, at configs.At) {
	k, ok := all[c.Run.Reward.Kind]
	for _, key := range configs.Keys() {
		const section = "reward."
		if len(key.Name) <= len(section) || key.Name[:len(section)] != section || key.Name == "reward.kind" ||
			c.Usual(key.Name) {
			continue
		}
		name := key.Name[len(section):]
		asks := (name == "timeout" || name == "parallel") && !k.Here
		if !ok || !asks && !slices.Contains(k.Reads, name) {
			at(key.Name, fmt.Sprintf("is not read by reward.kind = %s", c.Run.Reward.Kind), "remove it")
		}
	}
	if ok {
		if _, err := k.New(&c.Run.Reward); err != nil {
			at("reward.kind", err.Error(), "lfactor config explain reward.KEY says what each key means")
		}
	}
}

// Of is the reward of a configuration.
func Of(c *configs.Reward) (Func, error) {
	k, ok := all[c.Kind]
	if !ok {
		return nil, fmt.Errorf("no reward is named %q", c.Kind)
	}
	return k.New(c)
}

// Try says why the reward of a configuration cannot be asked at all: a fault of the configuration. It runs
// what the reward would run.
func Try(ctx context.Context, c *configs.Config) error {
	k := all[c.Run.Reward.Kind]
	if k.Try == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Run.Reward.Timeout*float64(time.Second)))
	defer cancel()
	if err := k.Try(ctx, c); err != nil {
		return c.Fault("reward."+k.Reads[0], err.Error(), k.Aid)
	}
	return nil
}

// Judges says why answers to a record cannot be judged, as far as reward.column goes: the record lacks it, or
// what it has is nothing that answers of this kind can be judged by.
func Judges(c *configs.Reward, record map[string]json.RawMessage) error {
	k := all[c.Kind]
	if !slices.Contains(k.Reads, "column") || c.Schema != "" {
		return nil
	}
	text, err := (&Answer{Record: record}).Column(c.Column)
	switch {
	case err != nil:
		has := slices.DeleteFunc(slices.Sorted(maps.Keys(record)), func(s string) bool { return s == "prompt" })
		return fmt.Errorf("%w; beside the prompt it has %q", err, has)
	case k.Gold != nil:
		if err := k.Gold(text); err != nil {
			return fmt.Errorf("column %s of the record: %w", c.Column, err)
		}
	}
	return nil
}

// Result is an answer's reward, or why it has none.
type Result struct {
	Value   float64
	Err     error
	Suspect bool // it seems to have meant to deceive its judge
}

// Each gives the rewards of answers, several at once, each within the time that it may take, but those of
// kinds that are computed here.
func Each(ctx context.Context, f Func, c *configs.Reward, answers []Answer) []Result {
	out := make([]Result, len(answers))
	var left sync.WaitGroup
	within, most := time.Duration(c.Timeout*float64(time.Second)), max(1, c.Parallel)
	if all[c.Kind].Here {
		within, most = 0, max(1, c.Judges)
	}
	places := make(chan struct{}, most)
	for i := range answers {
		places <- struct{}{}
		left.Go(func() {
			out[i] = one(ctx, f, within, &answers[i])
			<-places
		})
	}
	left.Wait()
	return out
}

// rewardMost bounds rewards: the squares of what lies beyond are no float32, so that advantages, returns and the
// losses of values are none.
const rewardMost = 1e18

// one is a reward in its time, 0 for any. A function that does not end with its context is left behind, and
// its answer has no reward.
func one(ctx context.Context, f Func, within time.Duration, a *Answer) Result {
	if within > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	if ctx.Err() != nil {
		return Result{Err: ctx.Err()}
	}
	ended := make(chan Result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- Result{Err: fmt.Errorf("the reward panicked: %v", p)}
			}
		}()
		v, err := f(ctx, a)
		if err == nil && !(math.Abs(v) <= rewardMost) {
			err = fmt.Errorf("the reward is %g, and no number from -%g to %[2]g, beyond which answers cannot be "+
				"compared", v, rewardMost)
		}
		ended <- Result{v, err, a.Suspect}
	}()
	select {
	case r := <-ended:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Err != nil {
			r.Err = fmt.Errorf("the reward took longer than reward.timeout, %v", within)
		}
		return r
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return Result{Err: ctx.Err()}
		}
		return Result{Err: fmt.Errorf("the reward took longer than reward.timeout, %v", within)}
	}
}
