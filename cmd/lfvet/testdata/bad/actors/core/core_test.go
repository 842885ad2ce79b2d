package core

import "os" // tests may read their data

var args = os.Args
