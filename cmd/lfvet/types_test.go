package main

import (
	"go/build"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFindStandard: a program that was built with -trimpath, and knows no standard library, has the types of one.
func TestFindStandard(t *testing.T) {
	was := build.Default.GOROOT
	t.Cleanup(func() { build.Default.GOROOT = was })
	build.Default.GOROOT = ""
	require.NoError(t, findStandard())
	c := newTypeChecker(&module{name: "none"})
	p, err := c.Import("strings")
	require.NoError(t, err)
	require.NotNil(t, p.Scope().Lookup("Cut"))
}
