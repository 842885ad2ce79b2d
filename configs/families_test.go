package configs_test

// The families register what configurations may name; the tests of this package read models of all of them.
import _ "github.com/lfactor/lfactor/stages/family"
