-- Rules of luacheck for moonprogs/, which scripts/guards.sh runs.
std = "luajit"
max_line_length = 130
self = false -- methods of a table that ignore the table are the same calls as MoonGen's
ignore = {
    "131", -- "unused global": a task, for the same reason
    "431", -- a local may be called what a module is called: load, sender, receiver
}
allow_defined_top = true -- MoonGen calls configure, master and the tasks by their names
-- What MoonGen and softmoon define for every program.
globals = { "log" }
read_globals = {
    "printf", "errorf", "tonumberall", "parseMacAddress", "bswap16", "hton16", "ntoh16", "time", "getColorCode",
    "green", "red", "white", "yellow",
}
