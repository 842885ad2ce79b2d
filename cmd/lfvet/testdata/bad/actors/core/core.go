// Package core breaks every ban.
package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	_ "os/exec"
	"slices"
	"sync/atomic"
	"time"
)

type table map[string]int

type holder struct{ t table }

// Draw uses chance of both kinds.
func Draw(own *rand.Rand) int {
	return own.IntN(3) + rand.New(rand.NewPCG(1, 2)).IntN(2) + rand.IntN(3)
}

// Loop starts a goroutine, uses channels and loops in an order of its own.
func Loop(h holder, plain map[int]int, list []int) {
	c := make(chan int)
	go func() { c <- 1 }()
	select {
	case v := <-c:
		fmt.Println(v)
	}
	for k := range h.t {
		fmt.Println(k)
	}
	for k := range maps.Keys(plain) {
		fmt.Println(k)
	}
	copied := maps.Clone(plain)
	for k := range copied {
		fmt.Println(k)
	}
	n := 0
	for _, v := range plain { //lfvet:order integers are summed
		n += v
	}
	for range plain { //lfvet:order
	}
	for _, k := range slices.Sorted(maps.Keys(plain)) {
		fmt.Println(k)
	}
	for _, v := range list {
		fmt.Println(v)
	}
	fmt.Println(os.Args, time.Now(), atomic.AddInt64)
}
