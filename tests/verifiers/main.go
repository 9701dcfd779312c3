// Runs the cases of a JSON file through the functions beside; prints the verdicts.
package main

import (
	"encoding/json"
	"os"
)

type request struct {
	Function string
	Headers  map[string]string
	Body     []byte
	Key      string
}

func main() {
	functions := map[string]func(func(string) string, []byte, string) bool{
		"verify": verify, "verify_v1a": verifyV1a,
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	var cases []request
	if err := json.NewDecoder(file).Decode(&cases); err != nil {
		panic(err)
	}
	verdicts := []bool{}
	for _, each := range cases {
		header := func(name string) string { return each.Headers[name] }
		verdicts = append(verdicts, functions[each.Function](header, each.Body, each.Key))
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		panic(err)
	}
}
