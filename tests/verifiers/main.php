// Runs the cases of a JSON file through the functions above; prints the verdicts.
$verdicts = [];
foreach (json_decode(file_get_contents($argv[1]), true) as $given) {
    $verdicts[] = $given['function']($given['headers'], base64_decode($given['body']), $given['key']);
}
echo json_encode($verdicts), "\n";
