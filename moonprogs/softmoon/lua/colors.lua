--- Colour codes, written even into files, as MoonGen does.
local codes = {
	black = "\27[0;30m", red = "\27[1;31m", green = "\27[0;32m", yellow = "\27[1;33m", blue = "\27[0;34m",
	cyan = "\27[1;36m", white = "\27[1;37m", bred = "\27[1;31m",
}
local RESET = "\27[0m"

function getColorCode(name)
	return name and codes[name] or RESET
end

for name, code in pairs(codes) do
	_G[name] = function(format, ...)
		return code .. format:format(...) .. RESET
	end
end

return codes
