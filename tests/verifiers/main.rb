# Runs the cases of a JSON file through the functions above; prints the verdicts.
require "json"

verdicts = JSON.parse(File.read(ARGV[0], encoding: "utf-8")).map do |given|
  send(given["function"], given["headers"], given["body"].unpack1("m0"), given["key"])
end
puts JSON.generate(verdicts)
