// Command libazserve is the C library of the Python package: `go build -buildmode=c-shared`.
package main

import _ "github.com/azserve/azserve/python/native" // its exports are the library

func main() {}
