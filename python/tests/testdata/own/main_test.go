package main

import (
	"testing"

	"github.com/azserve/azserve/envs"
	"github.com/azserve/azserve/envs/envstest"
)

func TestCounter(t *testing.T) {
	g, err := NewCounter(CounterConfig{Limit: 5, Ending: "both"})
	if err != nil {
		t.Fatal(err)
	}
	env, err := envs.Define(g)
	if err != nil {
		t.Fatal(err)
	}
	envstest.Battery(t, env)
}
