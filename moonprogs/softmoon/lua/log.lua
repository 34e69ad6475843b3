--- Messages in MoonGen's form.
local strict = require "softmoon.strict"
require "colors"

local log = {}

local function writer(level, paint)
	return function(_, format, ...)
		-- painted as a whole, like MoonGen's; "%s" because the text may hold a percent sign
		print(paint("%s", ("[%s]  "):format(level) .. format:format(...)))
	end
end

log.info = writer("INFO", white)
log.warn = writer("WARN", yellow)
log.error = writer("ERROR", red)

function log:debug() end
function log:setLevel() end

--- Ends the task, or the program when called in the master.
function log:fatal(format, ...)
	error(format:format(...), 0)
end

return strict(log, "log:")
