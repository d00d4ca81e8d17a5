// Package analysis is KataGo's analysis engine for any environment: queries come in as lines of JSON, positions of
// them are searched several at a time, answers go out as lines of JSON in the order in which they are ready. The
// fields have KataGo's names and meanings (its docs/Analysis_Engine.md) as far as they make sense for other games:
//
//	{"id": "a", "moves": [["B", "3"], ["W", "3"]], "maxVisits": 800, "analyzeTurns": [0, 2], "includePolicy": true}
//
// Moves are the names or numbers of actions, alone or in pairs with a player, who is not looked at.
// overrideSettings are settings of the search by azserve's names. winrate, utility and lcb are from the view of the
// player to move at the root. What is about Go alone (komi, rules, boardXSize, ...) is answered with a warning, and
// not used.
package analysis
