package source

import "sync"

var later []func()

// Later has a function called before a registry is first read: descriptions are parsed only for who needs them.
func Later(f func()) { later = append(later, f) }

// Filled does what was put off. Whoever reads a registry that is filled so calls it before.
var Filled = sync.OnceFunc(func() {
	for _, f := range later {
		f()
	}
})
