package other

import _ "example.com/owned/part"

type Shape struct{ Field int }

func (Shape) Area() int { return 0 }

func (hidden) Exported() {}

func (Shape) String() string { return "" }

func String() {}

type hidden struct{}

const A, B = 1, 2

var (
	C = 1 // C has its comment behind it.
	D = 2
)

// E and F share the comment of their group.
const (
	E = 1
	F = 2
)

// G is for later. TODO: write it.
func G() {}
